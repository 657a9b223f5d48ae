"""The bus in memory: the same port and rules as the real adapter, for tests and simulation."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec
import structlog

from dray.api.errors import DrayError
from dray.bus.dead import dead_letter
from dray.bus.memory_consumer import MemoryConsumer, MemoryDelivery
from dray.bus.memory_store import MemoryServer, Signal, matches, with_pending
from dray.bus.ports import (
    BusUnavailableError,
    Delivery,
    Fence,
    Handler,
    Request,
    StoreUse,
    StreamMissingError,
    StreamSpec,
    StreamState,
)
from dray.messages.base import Delivered, Outgoing
from dray.messages.rpc import Reading, ReadingReply
from dray.runtime.backoff import Backoff

Hook = Callable[[], Awaitable[None]]
_READING_S: Final = 2.0
"""Timeout of a request for a consumer, as in the real adapter."""
BATCH: Final = 512
"""Maximum number of messages that a reader buffers, as from JetStream. It notices a deletion after
them."""


class MemoryBus:
    """One connection to an in-memory server. ``peer`` makes more connections to the same server.

    For tests: ``disconnect`` and ``reconnect``, ``fail_next`` (before the call, or after it so
    that only the answer is lost), and ``before[method]`` = an async callable awaited first.
    """

    def __init__(
        self,
        server: MemoryServer | None = None,
        *,
        now_unix_s: Callable[[], float] = time.time,
        user: str = "",
        readings: str = "",
    ) -> None:
        self.server = server or MemoryServer(now_unix_s)
        self.user = user
        """The user of this connection, as responders see it."""
        self._readings = readings
        """Subject for consumer requests; empty: this connection owns the streams."""
        self._waiting: dict[str, str] = {}
        """Why a reading waits, by stream."""
        self.before: dict[str, Hook] = {}
        self._connected = True
        self._closed = False
        self._moved = Signal()
        self._faults: dict[str, deque[tuple[Exception, bool]]] = {}
        self._consumers: dict[tuple[str, str], MemoryConsumer] = {}
        self._answers: list[tuple[str, str, Handler]] = []

    def peer(self, user: str = "", readings: str = "") -> "MemoryBus":
        """Another connection to the same server. ``readings``: the subject of its requests for
        consumers, if it is not the owner's connection."""
        other = MemoryBus(self.server, user=user, readings=readings)
        other._consumers = self._consumers
        other._answers = self._answers
        return other

    def fail_next(self, method: str, error: Exception, *, after: bool = False) -> None:
        """Make the next call of ``method`` raise, before or after it has done its work."""
        self._faults.setdefault(method, deque()).append((error, after))

    def disconnect(self) -> None:
        """Until ``reconnect``, every call raises BusUnavailableError and readers wait."""
        self._connected = False
        self._wake()

    def reconnect(self) -> None:
        """Undo ``disconnect``."""
        self._connected = True
        self._wake()

    @property
    def connected(self) -> bool:
        """Whether calls can succeed."""
        return self._connected and not self._closed

    @property
    def problem(self) -> str | None:
        """See ``Bus.problem``."""
        if not self.connected:
            return "no connection to the in-memory bus"
        return next(iter(self._waiting.values()), None)

    @property
    def max_payload_bytes(self) -> int | None:
        """See ``Bus.max_payload_bytes``."""
        return self.server.max_payload_bytes

    async def ensure(self, stream: StreamSpec) -> bool:
        """See ``Bus.ensure``."""
        await self._enter("ensure")
        return self.server.ensure(stream)

    async def raise_replicas(self, stream: str) -> None:
        """See ``Bus.raise_replicas``: there is one server."""
        await self._enter("raise_replicas")

    async def delete_stream(self, name: str) -> None:
        """See ``Bus.delete_stream``."""
        await self._enter("delete_stream")
        self.server.delete(name)

    async def streams(self, prefix: str) -> tuple[StreamState, ...]:
        """See ``Bus.streams``."""
        await self._enter("streams")
        names = sorted(name for name in self.server.streams if name.startswith(prefix))
        return tuple(self.server.streams[name].state for name in names)

    async def purge(self, stream: str, below: int) -> None:
        """See ``Bus.purge``."""
        await self._enter("purge")
        if (source := self.server.streams.get(stream)) is not None:
            source.purge(below)
        self._leave("purge")

    async def store_use(self) -> StoreUse:
        """See ``Bus.store_use``."""
        await self._enter("store_use")
        states = (stream.state for stream in self.server.streams.values())
        return StoreUse(sum(state.bytes for state in states), self.server.storage_bytes)

    async def state(self, stream: str) -> StreamState | None:
        """See ``Bus.state``."""
        await self._enter("state")
        found = self.server.streams.get(stream)
        return None if found is None else found.state

    async def publish(self, message: Outgoing, *, fence: Fence | None = None) -> int:
        """See ``Bus.publish``."""
        await self._enter("publish")
        self.server.check_size(message)
        sequence = self.server.of_subject(message.subject).publish(message, fence)
        self._leave("publish")
        return sequence

    async def publish_all(
        self, batches: Iterable[Sequence[Outgoing]], *, fence: Fence | None = None
    ) -> list[int | DrayError]:
        """See ``Bus.publish_all``."""
        outcomes: list[int | DrayError] = []
        for batch in batches:
            outcomes += await asyncio.gather(*(self._outcome(one, fence) for one in batch))
            if any(isinstance(one, DrayError) for one in outcomes[-len(batch) :]):
                break
        return outcomes

    async def _outcome(self, message: Outgoing, fence: Fence | None) -> int | DrayError:
        try:
            return await self.publish(message, fence=fence)
        except DrayError as error:
            return error

    async def append(
        self, message: Outgoing, *, expected_last: int, identity: str = "", after: str = ""
    ) -> int:
        """See ``Bus.append``."""
        await self._enter("append")
        self.server.check_size(message)
        stream = self.server.of_subject(message.subject)
        sequence = stream.append(message, expected_last, identity=identity, after=after)
        self._leave("append")
        return sequence

    async def last(self, stream: str, subject: str) -> Delivered | None:
        """See ``Bus.last``."""
        await self._enter("last")
        if self._readings:
            await self._open(Reading(stream=stream, subjects=(subject,), last_only=True))
        found = self.server.named(stream).last(subject)
        self._leave("last")
        return found

    async def open_reading(self, reading: Reading) -> ReadingReply:
        """See ``Bus.open_reading``. Nobody pulls from this consumer."""
        await self._enter("open_reading")
        source = self.server.streams.get(reading.stream)
        if source is None:
            return ReadingReply(is_missing=True)
        state = source.state
        return ReadingReply(
            consumer="memory",
            created=state.created,
            first_sequence=state.first_sequence,
            last_sequence=state.last_sequence,
            pending=len(source.after(reading.start, reading.subjects)),
        )

    async def read(
        self, stream: str, *, subjects: Sequence[str] = (), start: int = 1
    ) -> AsyncIterator[Delivered]:
        """See ``Bus.read``."""
        async for batch in self.read_batches(stream, subjects=subjects, start=start):
            for message in batch:
                await self._until_connected()
                yield message

    async def read_batches(
        self, stream: str, *, subjects: Sequence[str] = (), start: int = 1
    ) -> AsyncIterator[Sequence[Delivered]]:
        """See ``Bus.read_batches``."""
        await self._until_connected()
        await self._get_consumer(Reading(stream=stream, subjects=tuple(subjects), start=start))
        source = self.server.named(stream)
        position, unseen, waiting = start, start, list[Delivered]()
        fired, losses = -1, source.tail_losses
        while True:
            await self._until_connected()
            if source.deleted:
                raise StreamMissingError(
                    f"the stream {stream} was deleted; discard what was read from it"
                )
            if position > start and source.last_sequence < position - 1:
                raise StreamMissingError(
                    f"the stream {stream} ends at {source.last_sequence}, but {position - 1} was "
                    "read from it: its end was lost"
                )
            if losses != source.tail_losses:
                losses, unseen = source.tail_losses, position
            if fired != source.changed.fired:
                fired, waiting = source.changed.fired, source.after(max(position, unseen), subjects)
                unseen = waiting[0].sequence if waiting else source.last_sequence + 1
            if waiting:
                batch = [with_pending(waiting, index) for index in range(len(waiting[:BATCH]))]
                position, waiting = batch[-1].sequence + 1, waiting[BATCH:]
                yield batch
            else:
                await Signal.first_of(source.changed, self._moved)

    async def consume(
        self, stream: str, *, durable: str, subjects: Sequence[str] = ()
    ) -> AsyncIterator[Delivery]:
        """See ``Bus.consume``. Raises StreamMissingError when the stream is missing."""
        await self._until_connected()
        source = self.server.named(stream)
        consumer = self._consumers.get((stream, durable))
        if consumer is None or consumer.stream is not source:
            consumer = self._consumers[stream, durable] = MemoryConsumer(source, tuple(subjects))
        while True:
            await self._until_connected()
            if source.deleted:
                raise StreamMissingError(f"the stream {stream} was deleted")
            if (taken := consumer.take()) is not None:
                yield MemoryDelivery(consumer, *taken, bury=self._bury)
            else:
                within_s = consumer.next_due_s()
                await Signal.first_of(source.changed, self._moved, within_s=within_s)

    async def notify(self, subject: str, payload: bytes) -> None:
        """See ``Bus.notify``. If a stream has the subject, it stores the message."""
        await self._enter("notify")
        self.server.check_size(Outgoing(subject, payload))
        try:
            self.server.of_subject(subject).store(Outgoing(subject, payload), deduplicate=False)
        except StreamMissingError:
            return

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """See ``Bus.request``."""
        await self._enter("request")
        self.server.check_size(Outgoing(subject, payload))
        asked = Request(subject, payload, self.user)
        waiting = {asyncio.ensure_future(_answered(asked, one)) for one in self._asked(subject)}
        try:
            async with asyncio.timeout(timeout_s):
                while waiting:
                    done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        answer = task.result()
                        # The real adapter can't send an answer that is too large, either.
                        if answer is not None and len(answer) <= self.server.max_payload_bytes:
                            return answer
        except TimeoutError:
            pass
        finally:
            for task in waiting:
                task.cancel()
        raise BusUnavailableError(f"{subject} had no answer within {timeout_s} s")

    def _asked(self, subject: str) -> list[Handler]:
        """One responder of each queue that serves the subject, in turn."""
        queues: dict[str, list[Handler]] = {}
        for pattern, queue, handler in self._answers:
            if matches(subject, pattern):
                queues.setdefault(queue, []).append(handler)
        self.server.questions += 1
        return [members[self.server.questions % len(members)] for members in queues.values()]

    async def serve(self, subject: str, handler: Handler, *, queue: str) -> None:
        """See ``Bus.serve``."""
        entry = (subject, queue, handler)
        self._answers.append(entry)
        try:
            while not self._closed:
                await Signal.first_of(self._moved)
        finally:
            self._answers.remove(entry)

    async def acquire(self, key: str, holder: str, *, ttl_s: float) -> bool:
        """See ``Bus.acquire``."""
        await self._enter("acquire")
        return self.server.take_lease(key, holder, ttl_s)

    async def acquire_all(
        self, keys: Sequence[str], holder: str, *, ttl_s: float
    ) -> list[bool | DrayError]:
        """See ``Bus.acquire_all``."""
        return await acquire_each(self.acquire, keys, holder, ttl_s=ttl_s)

    async def release(self, key: str, holder: str) -> None:
        """See ``Bus.release``."""
        await self._enter("release")
        if self.server.leases.get(key, ("", 0.0))[0] == holder:
            del self.server.leases[key]

    async def lease_holders(self, prefix: str) -> dict[str, str]:
        """See ``Bus.lease_holders``."""
        await self._enter("lease_holders")
        return {key: self.server.leases[key][0] for key in self.server.held(prefix)}

    async def leases(self, prefix: str) -> tuple[str, ...]:
        """See ``Bus.leases``."""
        await self._enter("leases")
        return self.server.held(prefix)

    async def close(self) -> None:
        """See ``Bus.close``."""
        self._closed = True
        self._wake()

    async def _get_consumer(self, reading: Reading) -> None:
        """Wait until the owner grants a consumer; other roles need one from it. Raises
        StreamMissingError."""
        backoff = Backoff(0.02, 2.0)
        try:
            while self._readings:
                await self._until_connected()
                try:
                    await self._open(reading)
                    return
                except BusUnavailableError as error:
                    self._waiting[reading.stream] = str(error)
                await backoff.pause()
        finally:
            self._waiting.pop(reading.stream, None)

    async def _open(self, reading: Reading) -> None:
        """Ask for a consumer. Raises StreamMissingError, BusUnavailableError."""
        question = msgspec.json.encode(reading)
        answer = await self.request(self._readings, question, timeout_s=_READING_S)
        reply = msgspec.json.decode(answer, type=ReadingReply)
        if reply.is_missing:
            raise StreamMissingError(f"there is no stream {reading.stream}")
        if reply.error:
            raise BusUnavailableError(f"{reading.stream} can't be read: {reply.error}")

    async def _bury(self, message: Delivered, reason: str) -> None:
        await self.publish(dead_letter(message, reason))

    async def _enter(self, method: str) -> None:
        if (hook := self.before.get(method)) is not None:
            await hook()
        if not self.connected:
            raise BusUnavailableError(f"{method}: the in-memory bus is disconnected")
        self._raise_fault(method, after=False)

    def _leave(self, method: str) -> None:
        self._raise_fault(method, after=True)

    def _raise_fault(self, method: str, *, after: bool) -> None:
        faults = self._faults.get(method)
        if faults and faults[0][1] is after:
            raise faults.popleft()[0]

    def _wake(self) -> None:
        self._moved.fire()

    async def _until_connected(self) -> None:
        while not self._connected and not self._closed:
            await Signal.first_of(self._moved)
        if self._closed:
            raise BusUnavailableError("the bus was closed")


async def _answered(asked: Request, handler: Handler) -> bytes | None:
    try:
        return await handler(asked)
    except Exception as error:  # noqa: BLE001
        # As in the real adapter, the requester does not see the handler's error.
        structlog.get_logger().warning(
            "a request was not answered", subject=asked.subject, error=repr(error)
        )
        return None


async def acquire_each(
    acquire: Callable[..., Awaitable[bool]], keys: Sequence[str], holder: str, *, ttl_s: float
) -> list[bool | DrayError]:
    """``Bus.acquire_all`` with one call of ``acquire`` for each lease."""

    async def outcome(key: str) -> bool | DrayError:
        try:
            return await acquire(key, holder, ttl_s=ttl_s)
        except DrayError as error:
            return error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome(key)) for key in keys]
    return [task.result() for task in tasks]
