"""Streams in memory, with the rules of JetStream that dray relies on."""

import asyncio
import functools
import heapq
import itertools
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import msgspec

from dray.bus.ports import (
    Fence,
    MessageTooLargeError,
    NoRoomError,
    StaleSequenceError,
    StreamMissingError,
    StreamSpec,
    StreamState,
)
from dray.messages.base import Delivered, Outgoing, sent_bytes

_MESSAGE_ID = "Nats-Msg-Id"
_TTL = "Nats-TTL"
_created = itertools.count(1)


class Signal:
    """Wakes all waiters each time that it fires."""

    def __init__(self) -> None:
        self.fired = 0
        """How many times it fired."""
        self._waiting: dict[asyncio.Future[None], None] = {}

    def fire(self) -> None:
        """Wake all waiters."""
        self.fired += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    @staticmethod
    async def first_of(*signals: "Signal", within_s: float | None = None) -> None:
        """Wait until one of them fires or the time is over."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        for signal in signals:
            signal._waiting[future] = None
        timer = None if within_s is None else loop.call_later(within_s, _finish, future)
        try:
            await future
        finally:
            for signal in signals:
                del signal._waiting[future]
            if timer is not None:
                timer.cancel()


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def matches(subject: str, pattern: str) -> bool:
    """Whether a subject matches a pattern with the wildcards ``*`` and ``>``."""
    return _compiled(pattern)(subject)


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Callable[[str], bool]:
    fixed, rest, _ = pattern.partition(">")
    if "*" not in pattern:
        return (lambda subject: subject.startswith(fixed)) if rest else fixed.__eq__
    tokens = re.escape(fixed).replace(r"\*", "[^.]*")
    expression = re.compile(tokens + (".*" if rest else ""), re.DOTALL)
    return lambda subject: expression.fullmatch(subject) is not None


def matches_any(subject: str, patterns: Sequence[str]) -> bool:
    """Whether a subject matches one of the patterns. No patterns: it matches."""
    return not patterns or any(matches(subject, pattern) for pattern in patterns)


def _ttl_s(headers: dict[str, str]) -> float | None:
    """Seconds of a ``Nats-TTL`` header such as ``3600s``."""
    text = headers.get(_TTL)
    return None if text is None else float(text.removesuffix("s"))


@dataclass(slots=True)
class MemoryStream:
    """One stream: messages by sequence, and a signal for waiting readers."""

    spec: StreamSpec
    now_unix_s: Callable[[], float]
    created: str = field(default_factory=lambda: f"memory-{next(_created)}")
    last_sequence: int = 0
    last_identity: str = ""
    """Identity of the last append, if it had one."""
    deleted: bool = False
    messages: OrderedDict[int, Delivered] = field(default_factory=OrderedDict)
    changed: Signal = field(default_factory=Signal)
    tail_losses: int = 0
    """How many times the newest messages were lost. Their sequences are used again."""
    _expires: list[tuple[float, int]] = field(default_factory=list)
    """A heap of expiry times with the messages' sequences. Some of the messages may be gone."""
    _by_subject: dict[str, int] = field(default_factory=dict)
    _seen: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)
    """Time and sequence of the last stored message of each identity, within the window."""
    _bytes: int = 0

    @property
    def state(self) -> StreamState:
        """What a server would report."""
        self.expire()
        first = next(iter(self.messages), self.last_sequence + 1)
        return StreamState(
            self.spec.name, first, self.last_sequence, self.created, bytes=self._bytes
        )

    def store(self, message: Outgoing, *, deduplicate: bool) -> int:
        """Store a message; return its sequence, or that of its duplicate within the window."""
        self.expire()
        now_unix_s = self.now_unix_s()
        self._forget_seen(now_unix_s)
        identity = message.headers.get(_MESSAGE_ID) if deduplicate else None
        if identity is not None and identity in self._seen:
            return self._seen[identity][1]
        self.last_sequence += 1
        if identity is not None:
            self._seen[identity] = (now_unix_s, self.last_sequence)
        self._keep(message, now_unix_s)
        self.wake()
        return self.last_sequence

    def _forget_seen(self, now_unix_s: float) -> None:
        """Forget identities that were stored before the window."""
        before_unix_s = now_unix_s - self.spec.duplicate_window_s
        while self._seen and next(iter(self._seen.values()))[0] <= before_unix_s:
            self._seen.popitem(last=False)

    def publish(self, message: Outgoing, fence: Fence | None) -> int:
        """Store a message if the fence lets it pass and it is no duplicate.
        Raises StaleSequenceError."""
        if fence is not None:
            known = self.last(fence.subject)
            sequence = 0 if known is None else known.sequence
            if sequence != fence.last_sequence:
                raise StaleSequenceError(
                    f"{message.subject} expected {fence.last_sequence} as the last sequence of "
                    f"{fence.subject}, but it is {sequence}: another writer was first"
                )
        return self.store(message, deduplicate=True)

    def last(self, subject: str) -> Delivered | None:
        """The newest message of a subject."""
        self.expire()
        return self.messages.get(self._by_subject.get(subject, 0))

    def append(
        self, message: Outgoing, expected_last: int, *, identity: str = "", after: str = ""
    ) -> int:
        """Store a message if the last sequence is the expected one, and the last identity too if
        one is given. Raises StaleSequenceError."""
        if expected_last != self.last_sequence:
            raise StaleSequenceError(
                f"append to {self.spec.name} expected the last sequence {expected_last}, but it is "
                f"{self.last_sequence}: another writer appended; "
                "read the new records and decide again"
            )
        if after and after != self.last_identity:
            raise StaleSequenceError(
                f"append to {self.spec.name} expected to follow {after}, but {expected_last} is "
                f"{self.last_identity or 'another record'}: read the new records and decide again"
            )
        self.last_identity = identity
        return self.store(message, deduplicate=False)

    def after(self, sequence: int, subjects: Sequence[str]) -> list[Delivered]:
        """Messages from ``sequence`` on that match ``subjects``."""
        self.expire()
        newest_first = reversed(self.messages.values())
        found = takewhile(lambda message: message.sequence >= sequence, newest_first)
        return [one for one in found if matches_any(one.subject, subjects)][::-1]

    def purge(self, below: int | None = None) -> None:
        """Drop every message, or those with lower sequences; the last sequence stays, as in
        JetStream."""
        gone = takewhile(lambda one: below is None or one < below, self.messages)
        for sequence in list(gone):
            self._drop(sequence)
        self.wake()

    def lose_tail(self, count: int) -> None:
        """Lose the newest messages, like a server that lost power before it synced them."""
        kept = max(0, self.last_sequence - count)
        for sequence in [number for number in self.messages if number > kept]:
            self._drop(sequence)
        self._expires = [entry for entry in self._expires if entry[1] <= kept]
        heapq.heapify(self._expires)
        self.last_sequence = kept
        self.last_identity = ""
        self.tail_losses += 1
        self.wake()

    def expire(self) -> None:
        """Drop expired messages."""
        now_unix_s = self.now_unix_s()
        while self._expires and self._expires[0][0] <= now_unix_s:
            self._drop(heapq.heappop(self._expires)[1])

    def _forget_expired_early(self) -> None:
        """Forget the expiry times of messages that are gone, once these are the majority."""
        if len(self._expires) > 2 * len(self.messages) + 1024:
            self._expires = [entry for entry in self._expires if entry[1] in self.messages]
            heapq.heapify(self._expires)

    def wake(self) -> None:
        """Wake the waiting readers."""
        self.changed.fire()

    def _keep(self, message: Outgoing, now_unix_s: float) -> None:
        sequence = self.last_sequence
        if self.spec.last_per_subject and (older := self._by_subject.get(message.subject)):
            self._drop(older)
        self._by_subject[message.subject] = sequence
        ages = (self.spec.max_age_s, _ttl_s(message.headers) if self.spec.message_ttl else None)
        if lives := [age for age in ages if age is not None]:
            self._forget_expired_early()
            heapq.heappush(self._expires, (now_unix_s + min(lives), sequence))
        self.messages[sequence] = Delivered(
            subject=message.subject,
            payload=message.payload,
            headers=dict(message.headers),
            stream=self.spec.name,
            sequence=sequence,
            time_unix_s=now_unix_s,
        )
        self._bytes += _size(self.messages[sequence])
        while self.spec.max_bytes is not None and self._bytes > self.spec.max_bytes:
            self._drop(next(iter(self.messages)))

    def _drop(self, sequence: int) -> None:
        message = self.messages.pop(sequence, None)
        if message is None:
            return
        self._bytes -= _size(message)
        if self._by_subject.get(message.subject) == sequence:
            del self._by_subject[message.subject]


def _size(message: Delivered) -> int:
    headers = sum(len(name) + len(value) for name, value in message.headers.items())
    return len(message.subject) + headers + len(message.payload)


class MemoryServer:
    """The state of a NATS server: streams, durable consumers' positions, leases, responders."""

    def __init__(self, now_unix_s: Callable[[], float]) -> None:
        self.now_unix_s = now_unix_s
        self.streams: dict[str, MemoryStream] = {}
        self.questions = 0
        """Number of requests so far, so that responders of one queue take turns."""
        self.leases: dict[str, tuple[str, float]] = {}
        """Holder of each lease and the time at which it lapses, by key."""
        self.storage_bytes = 2**50
        """Bytes that streams may reserve."""
        self.max_payload_bytes = 2**20
        """nats-server's default."""

    def check_size(self, message: Outgoing) -> None:
        """Raise MessageTooLargeError for a message that a server would refuse."""
        size_bytes = sent_bytes(message.payload, message.headers)
        if size_bytes > self.max_payload_bytes:
            raise MessageTooLargeError(message.subject, size_bytes, self.max_payload_bytes)

    def ensure(self, spec: StreamSpec) -> bool:
        """Create the stream if it is missing. Raises NoRoomError."""
        others = (one.spec for name, one in self.streams.items() if name != spec.name)
        needed = sum(one.max_bytes or 0 for one in (spec, *others))
        if spec.max_bytes and needed > self.storage_bytes:
            raise NoRoomError(f"{spec.name}: insufficient storage resources available")
        if spec.name in self.streams:
            self.streams[spec.name].spec = spec
            return False
        self.streams[spec.name] = MemoryStream(spec, self.now_unix_s)
        return True

    def delete(self, name: str) -> None:
        """Delete a stream, and wake its readers."""
        stream = self.streams.pop(name, None)
        if stream is not None:
            stream.deleted = True
            stream.wake()

    def lose_everything(self) -> None:
        """Start again with an empty store."""
        for name in list(self.streams):
            self.delete(name)
        self.leases.clear()

    def named(self, name: str) -> MemoryStream:
        """The stream. Raises StreamMissingError."""
        stream = self.streams.get(name)
        if stream is None:
            raise StreamMissingError(f"there is no stream {name}; who makes it has not run yet?")
        return stream

    def of_subject(self, subject: str) -> MemoryStream:
        """The stream that stores the subject. Raises StreamMissingError."""
        for stream in self.streams.values():
            if matches_any(subject, stream.spec.subjects):
                return stream
        raise StreamMissingError(f"no stream keeps {subject}: it was never created, or it was lost")

    def take_lease(self, key: str, holder: str, ttl_s: float) -> bool:
        """Take or renew a lease; False while another holds it."""
        now_unix_s = self.now_unix_s()
        owner, lapses_unix_s = self.leases.get(key, ("", 0.0))
        if owner != holder and lapses_unix_s > now_unix_s:
            return False
        self.leases[key] = (holder, now_unix_s + ttl_s)
        return True

    def held(self, prefix: str) -> tuple[str, ...]:
        """Keys of leases that have not lapsed."""
        now_unix_s = self.now_unix_s()
        lapses = sorted((key, lapses) for key, (_, lapses) in self.leases.items())
        return tuple(key for key, at in lapses if key.startswith(prefix) and at > now_unix_s)


def with_pending(batch: Sequence[Delivered], index: int) -> Delivered:
    """A message of a batch, with the number of messages after it."""
    return msgspec.structs.replace(batch[index], pending=len(batch) - 1 - index)
