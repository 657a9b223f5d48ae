"""What dray needs of a message bus: a durable, sequenced, fenced log; questions; leases."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dray.domain.errors import PermanentError, TemporaryError
from dray.messages.base import Delivered, Outgoing
from dray.messages.rpc import Reading, ReadingReply


class BusUnavailableError(TemporaryError):
    """The bus can't be reached, or did not answer in time: the outcome is unknown."""


class NoRoomError(BusUnavailableError):
    """The store has no room for a message, or for the bytes that a stream may keep."""


class StaleSequenceError(PermanentError):
    """A last sequence was expected that is not the log's, or the subject's: somebody else wrote."""


class StreamMissingError(PermanentError):
    """The stream does not exist: it was never made, or its log was lost."""


class MessageTooLargeError(PermanentError):
    """The message, headers included, is larger than the server takes (``max_payload``)."""

    def __init__(self, subject: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{subject} with {size_bytes} bytes can't be published: the server takes "
            f"{limit_bytes} at most (max_payload)"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as the server reports it. ``created`` tells a re-created one apart."""

    name: str
    first_sequence: int
    last_sequence: int
    created: str
    replicas: int = 1
    """How many servers are to keep it."""
    lagging: tuple[str, ...] = ()
    """Servers that should keep it and are away or behind."""
    cluster: str = ""
    """Of servers; empty: there is one."""
    wanted: int = 0
    """Replicas that the servers could not keep when it was made; 0: it got what was wanted."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """How a stream keeps its messages."""

    name: str
    subjects: tuple[str, ...]
    last_per_subject: bool = False
    max_age_s: float | None = None
    max_bytes: int | None = None
    """The oldest messages are dropped where the stream would keep more; None: no limit. The server
    sets so much of its storage aside."""
    message_ttl: bool = False
    duplicate_window_s: float = 120.0
    purpose: str = ""


@dataclass(frozen=True, slots=True)
class Fence:
    """Lets a message in only while the last one of ``subject`` has ``last_sequence``."""

    subject: str
    """Of the same stream; the message's own, or another that stands for the right to write."""
    last_sequence: int
    """0: there is none."""


@dataclass(frozen=True, slots=True)
class Request:
    """A question as it reached the one who answers it."""

    subject: str
    payload: bytes
    user: str = ""
    """Who asks, as the server authenticated it; empty where the server does not say it: within
    one account, and of an account whose imports do not share it."""


Handler = Callable[[Request], Awaitable[bytes | None]]


class Delivery(Protocol):
    """A message of a durable consumer, to be answered exactly once."""

    @property
    def message(self) -> Delivered:
        """The message."""

    @property
    def attempts(self) -> int:
        """How often it was delivered, this time included."""

    async def ack(self) -> None:
        """Done: it is not delivered again."""

    async def retry(self, delay_s: float) -> None:
        """Deliver it again after ``delay_s``."""

    async def reject(self, reason: str) -> None:
        """Never deliver it again; it is published to ``dray.dead.…`` with the reason."""


class Bus(Protocol):
    """The bus. Every method raises BusUnavailableError while it can't be reached."""

    @property
    def connected(self) -> bool:
        """Whether the bus can be reached now."""

    @property
    def problem(self) -> str | None:
        """Why the bus can't be used fully, for people: no connection, or a reading that waits for
        its consumer. None if all is well."""

    @property
    def max_payload_bytes(self) -> int | None:
        """The longest message that the server takes; None before the first connection. A longer
        one raises MessageTooLargeError wherever it is sent."""

    async def ensure(self, stream: StreamSpec) -> bool:
        """Make the stream if it is missing; True if it was made now. Idempotent. Raises NoRoomError
        where ``max_bytes`` can't be set aside."""

    async def raise_replicas(self, stream: str) -> None:
        """Raise the replicas of an existing stream that has fewer than wanted, if the servers can
        keep more by now. Never lowers them; an absent stream is fine."""

    async def delete_stream(self, name: str) -> None:
        """Delete a stream; absent is fine."""

    async def state(self, stream: str) -> StreamState | None:
        """The stream's state, or None where it does not exist."""

    async def publish(self, message: Outgoing, *, fence: Fence | None = None) -> int:
        """Store in the stream of the subject; its sequence. Duplicates within the window are
        dropped by ``Nats-Msg-Id``, once the fence has let them pass. Raises StreamMissingError,
        StaleSequenceError."""

    async def append(
        self, message: Outgoing, *, expected_last: int, identity: str = "", after: str = ""
    ) -> int:
        """Store only if the stream's last sequence is ``expected_last``; the new sequence.
        Calls may overlap with predicted sequences; they reach the server in call order.
        Another writer's record may take a predicted sequence. So a caller that overlaps calls gives
        each an ``identity`` of its own and names the one before it in ``after``: the append also
        fails if that one is not the last. Raises StaleSequenceError,
        StreamMissingError."""

    async def last(self, stream: str, subject: str) -> Delivered | None:
        """The newest message of a subject, or None. Raises StreamMissingError."""

    async def open_reading(self, reading: Reading) -> ReadingReply:
        """Make a consumer for somebody else to pull from; only the owner of the streams can. What
        JetStream refuses is in the reply."""

    def read(
        self, stream: str, *, subjects: Sequence[str] = (), start: int = 1
    ) -> AsyncIterator[Delivered]:
        """Every message from ``start`` on, in order, without end, resuming after a
        disconnection without loss or repetition. Raises StreamMissingError when the stream is
        missing or was re-created (its reader must forget what it folded)."""

    def read_batches(
        self, stream: str, *, subjects: Sequence[str] = (), start: int = 1
    ) -> AsyncIterator[Sequence[Delivered]]:
        """As ``read``, all that is at hand at once; never nothing."""

    def consume(
        self, stream: str, *, durable: str, subjects: Sequence[str] = ()
    ) -> AsyncIterator[Delivery]:
        """Messages of a durable consumer, shared by all who use the same name."""

    async def notify(self, subject: str, payload: bytes) -> None:
        """Publish without storing."""

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """Ask and wait. Raises BusUnavailableError when nobody answers in time."""

    async def serve(self, subject: str, handler: Handler, *, queue: str) -> None:
        """Answer questions until the bus closes; one of ``queue`` answers each. None leaves a
        question to those who serve it under another ``queue``."""

    async def acquire(self, key: str, holder: str, *, ttl_s: float) -> bool:
        """Take or renew the lease on ``key``; False while another holds it. It lapses by
        itself ``ttl_s`` after the last renewal. A lease is a courtesy, never a fence."""

    async def release(self, key: str, holder: str) -> None:
        """Give the lease up, if ``holder`` has it."""

    async def leases(self, prefix: str) -> tuple[str, ...]:
        """The keys that begin with ``prefix``, which ends with a dot, and that somebody holds or
        gave up within the last second, in order."""

    async def close(self) -> None:
        """Finish what is in flight, then disconnect."""
