"""The bus as dray needs it: durable, sequenced, fenced streams; request and reply; leases."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dray.api.errors import DrayError, PermanentError, TemporaryError
from dray.messages.base import Delivered, Outgoing
from dray.messages.rpc import Reading, ReadingReply


class BusUnavailableError(TemporaryError):
    """The bus can't be reached, or did not answer in time: the outcome is unknown."""


class NoRoomError(BusUnavailableError):
    """The store has no space for a message, or for the bytes that a stream reserves."""


class StaleSequenceError(PermanentError):
    """The expected last sequence is not the stream's, or the subject's: another writer appended."""


class StreamMissingError(PermanentError):
    """The stream does not exist: it was never created, or its log was lost."""


class MessageTooLargeError(PermanentError):
    """The message with its headers is larger than the server accepts (``max_payload``)."""

    def __init__(self, subject: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{subject} with {size_bytes} bytes can't be published: the server takes "
            f"{limit_bytes} at most (max_payload)"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as the server reports it. ``created`` differs after it was created again."""

    name: str
    first_sequence: int
    last_sequence: int
    created: str
    replicas: int = 1
    """How many servers should keep it."""
    lagging: tuple[str, ...] = ()
    """Servers that should keep it, but are away or behind."""
    cluster: str = ""
    """The name of the server cluster; empty: there is one server."""
    wanted: int = 0
    """The number of replicas wanted at creation, if the servers could not provide it; else 0."""
    bytes: int = 0
    """The bytes that each of its servers stores."""


@dataclass(frozen=True, slots=True)
class StoreUse:
    """How much of the server's storage the account's streams use."""

    bytes: int
    limit_bytes: int | None
    """The account's limit. None: it has no limit, and the server's limit is unknown."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """How a stream keeps its messages."""

    name: str
    subjects: tuple[str, ...]
    last_per_subject: bool = False
    max_age_s: float | None = None
    max_bytes: int | None = None
    """The oldest messages are dropped beyond this; None: no limit. The server reserves this much
    storage."""
    message_ttl: bool = False
    duplicate_window_s: float = 120.0
    purpose: str = ""


@dataclass(frozen=True, slots=True)
class Fence:
    """Accepts a message only while the last message of ``subject`` has ``last_sequence``."""

    subject: str
    """A subject of the same stream: the message's own, or one that represents the right to
    write."""
    last_sequence: int
    """0: there is no message of ``subject``."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the responder receives it."""

    subject: str
    payload: bytes
    user: str = ""
    """The requester, authenticated by the server. Empty within one account, and for an account
    whose imports do not share it."""


Handler = Callable[[Request], Awaitable[bytes | None]]


class Delivery(Protocol):
    """A message of a durable consumer, to be acknowledged exactly once."""

    @property
    def message(self) -> Delivered:
        """The message."""

    @property
    def attempts(self) -> int:
        """How many times it was delivered, including this time."""

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
        """Why the bus is not fully usable, for people: no connection, or a reading that waits for
        its consumer. None if it is fully usable."""

    @property
    def max_payload_bytes(self) -> int | None:
        """The longest message that the server accepts; None before the first connection. Every
        method that sends a longer one raises MessageTooLargeError."""

    async def ensure(self, stream: StreamSpec) -> bool:
        """Create the stream if it is missing; True if it was created now. Idempotent. Raises
        NoRoomError if ``max_bytes`` can't be reserved."""

    async def raise_replicas(self, stream: str) -> None:
        """Raise the replicas of an existing stream that has fewer than wanted, if the servers can
        keep more now. Never lowers the number. An absent stream is no error."""

    async def delete_stream(self, name: str) -> None:
        """Delete a stream. An absent stream is no error."""

    async def streams(self, prefix: str) -> tuple[StreamState, ...]:
        """The streams whose names begin with ``prefix``, ordered by name. Some may be missing while
        servers of a cluster are away. For the streams' owner."""

    async def purge(self, stream: str, below: int) -> None:
        """Remove the messages with lower sequences. The stream's last sequence stays. An absent
        stream is no error. For the streams' owner."""

    async def store_use(self) -> StoreUse:
        """How full the store is. For the streams' owner."""

    async def state(self, stream: str) -> StreamState | None:
        """The stream's state, or None if it does not exist."""

    async def publish(self, message: Outgoing, *, fence: Fence | None = None) -> int:
        """Store the message in the stream of its subject; return its sequence. The fence is checked
        first; then a duplicate within the window, by ``Nats-Msg-Id``, is dropped. Raises
        StreamMissingError, StaleSequenceError."""

    async def publish_all(
        self, batches: Iterable[Sequence[Outgoing]], *, fence: Fence | None = None
    ) -> list[int | DrayError]:
        """Store many messages in order, as ``publish`` does, without waiting for each. The next
        batch is taken from ``batches`` while earlier ones are in flight. After a failure no more
        are taken; without a connection, only the first is. Returns the sequence, or the error, of
        each message in the batches that were taken."""

    async def append(
        self, message: Outgoing, *, expected_last: int, identity: str = "", after: str = ""
    ) -> int:
        """Store only if the stream's last sequence is ``expected_last``; return the new sequence.
        Calls with predicted sequences may overlap; they reach the server in call order. Another
        writer's record may take a predicted sequence. So a caller that overlaps calls gives each an
        ``identity`` of its own and names the previous one in ``after``: the append also fails if
        the stream's last message has another identity. Raises StaleSequenceError,
        StreamMissingError."""

    async def last(self, stream: str, subject: str) -> Delivered | None:
        """The newest message of a subject, or None. Raises StreamMissingError."""

    async def open_reading(self, reading: Reading) -> ReadingReply:
        """Create a consumer for another client. Only the owner of the streams can. If JetStream
        refuses, the reply contains the refusal."""

    def read(
        self, stream: str, *, subjects: Sequence[str] = (), start: int = 1
    ) -> AsyncIterator[Delivered]:
        """Every message from ``start`` on, in order, without end. Resumes after a disconnection
        without loss or repetition. Raises StreamMissingError if the stream is missing or was
        re-created (the reader must then discard its state). Messages that are purged before they
        are read are skipped."""

    def read_batches(
        self, stream: str, *, subjects: Sequence[str] = (), start: int = 1
    ) -> AsyncIterator[Sequence[Delivered]]:
        """As ``read``, in non-empty batches of all buffered messages."""

    def consume(
        self, stream: str, *, durable: str, subjects: Sequence[str] = ()
    ) -> AsyncIterator[Delivery]:
        """Messages of a durable consumer, shared by all consumers of the same name."""

    async def notify(self, subject: str, payload: bytes) -> None:
        """Publish without storing."""

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """Send a request and wait. Raises BusUnavailableError without an answer in time."""

    async def serve(self, subject: str, handler: Handler, *, queue: str) -> None:
        """Answer requests until the bus closes. One responder of ``queue`` gets each request. A
        handler that returns None leaves the request to the responders of other queues."""

    async def acquire(self, key: str, holder: str, *, ttl_s: float) -> bool:
        """Take or renew the lease on ``key``; False while another holds it. It lapses ``ttl_s``
        after the last renewal. A lease is advisory, never a fence."""

    async def acquire_all(
        self, keys: Sequence[str], holder: str, *, ttl_s: float
    ) -> list[bool | DrayError]:
        """Take or renew many leases, as ``acquire`` does, without waiting for each. Returns the
        outcome or the error of each."""

    async def release(self, key: str, holder: str) -> None:
        """Release the lease if ``holder`` has it."""

    async def lease_holders(self, prefix: str) -> dict[str, str]:
        """The holder of each lease whose key begins with ``prefix``, which ends with a dot. Reads
        all leases at once. For the owner of the streams."""

    async def leases(self, prefix: str) -> tuple[str, ...]:
        """The keys, in order, that begin with ``prefix``, which ends with a dot, and are held or
        were released within the last second."""

    async def close(self) -> None:
        """Finish requests and messages in flight, then disconnect."""
