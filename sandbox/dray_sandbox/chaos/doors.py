"""Connections of one process to the in-memory API server and bus, slow and unreliable.

Each call can be slow, fail before or after its work, be carried out long after the caller gave
up, and end the caller's process before or after its work.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from dray.bus.memory import MemoryBus
from dray.bus.ports import Bus, BusUnavailableError, Delivery, StreamSpec, StreamState
from dray.kube.memory import MemoryKube
from dray.kube.ports import Kube, KubeUnavailableError, Listed, Object, Resource, WatchEvent
from dray.messages.base import Delivered, Outgoing
from dray_sandbox.chaos.loop import CURRENT, Process

T = TypeVar("T")


class Harm(StrEnum):
    """What happens to one call."""

    NONE = "none"
    REFUSED = "refused"
    """It fails and nothing was done."""
    ANSWER_LOST = "answer-lost"
    """It was done, but fails."""
    LATE = "late"
    """It fails, and is done later."""
    CRASH_BEFORE = "crash-before"
    CRASH_AFTER = "crash-after"
    STOP_BEFORE = "stop-before"
    """The process sleeps right before its request leaves, and sends it when it wakes."""
    STOP_AFTER = "stop-after"
    """It sleeps when the answer is there, and acts upon it when it wakes."""
    SLOW = "slow"
    """Seconds until it is done."""
    SLOW_ANSWER = "slow-answer"
    """Done at once, answered after seconds."""


class Fate(Protocol):
    """Who decides what happens to calls; seeded."""

    def harm(self, process: Process, call: str, what: str) -> Harm:
        """What becomes of this call."""

    def latency_s(self) -> float:
        """Of an ordinary call, one way."""

    def long_s(self) -> float:
        """Of a slow one."""

    def crash(self, process: Process, why: str) -> None:
        """End the process now."""

    def stop(self, process: Process) -> None:
        """Stop the process for a while."""

    def kube_away_s(self) -> float:
        """How long the API server is still away; 0 or less: it is there."""

    def believes(self) -> bool:
        """Whether who asks for a lease is told that it has it, whoever has."""

    def lag_s(self, process: Process) -> float:
        """How long what the process reads from the bus is held up; 0 or less: not at all."""


class Line:
    """What both doors of a process share: its fate, call by call."""

    def __init__(
        self, process: Process, fate: Fate, error: Callable[[str], Exception], kind: str
    ) -> None:
        self.process = process
        self._fate = fate
        self._error = error
        self._kind = kind
        self._last_s = 0.0

    async def call(self, method: str, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Carry a call out, as fate has it."""
        self._check(method)
        harm = self._fate.harm(self.process, f"{self._kind}.{method}", what)
        way_s = self._fate.long_s() if harm in (Harm.SLOW, Harm.LATE) else self._fate.latency_s()
        if harm is Harm.LATE:
            _outside(self._later(self._arrival_s(way_s), work))
            await self.travel()
            raise self._error(f"{method} {what}: no answer in time")
        await _until(self._arrival_s(way_s))
        self._check(method)
        if harm is Harm.REFUSED:
            raise self._error(f"{method} {what}: refused by fate")
        if harm is Harm.CRASH_BEFORE:
            await self._crash(f"before {method} {what}")
        if harm is Harm.STOP_BEFORE:
            await self._sleep_through()
        result = await work()
        if harm is Harm.CRASH_AFTER:
            await self._crash(f"after {method} {what}")
        if harm is Harm.STOP_AFTER:
            await self._sleep_through()
        await asyncio.sleep(
            self._fate.long_s() if harm is Harm.SLOW_ANSWER else self._fate.latency_s()
        )
        self._check(method)
        if harm is Harm.ANSWER_LOST:
            raise self._error(f"{method} {what}: the answer is lost")
        return result

    def believes(self) -> bool:
        """See ``Fate.believes``."""
        return self._fate.believes()

    async def travel(self) -> None:
        """The way of one message to this process."""
        await asyncio.sleep(self._fate.latency_s())

    async def until_caught_up(self) -> None:
        """Wait while what the process reads from the bus is held up."""
        while (lag_s := self._fate.lag_s(self.process)) > 0:  # noqa: ASYNC110 it is virtual time
            await asyncio.sleep(lag_s)

    async def until_back(self) -> None:
        """Wait while the API server is away."""
        while (away_s := self._fate.kube_away_s()) > 0:  # noqa: ASYNC110 it is virtual time
            await asyncio.sleep(away_s)

    def _check(self, method: str) -> None:
        if self.process.dead or (self._kind == "kube" and self._fate.kube_away_s() > 0):
            raise self._error(f"{method}: no connection")

    def _arrival_s(self, way_s: float) -> float:
        """Calls of one connection to the bus reach the server in their order."""
        arrival_s = asyncio.get_running_loop().time() + way_s
        if self._kind == "bus":
            arrival_s = self._last_s = max(arrival_s, self._last_s + 1e-6)
        return arrival_s

    async def _sleep_through(self) -> None:
        self._fate.stop(self.process)
        await asyncio.sleep(0)

    async def _crash(self, why: str) -> None:
        self._fate.crash(self.process, why)
        await asyncio.Event().wait()

    async def _later(self, arrival_s: float, work: Callable[[], Awaitable[Any]]) -> None:
        await _until(arrival_s)
        await asyncio.gather(work(), return_exceptions=True)


async def _until(at_s: float) -> None:
    await asyncio.sleep(at_s - asyncio.get_running_loop().time())


def _outside(work: Any) -> None:
    """Run in no process: what a server does has begun and goes on."""
    token = CURRENT.set(None)
    try:
        task = asyncio.get_running_loop().create_task(work)
        _kept.add(task)
        task.add_done_callback(_kept.discard)
    finally:
        CURRENT.reset(token)


_kept: set[asyncio.Task[Any]] = set()


class FaultyKube:
    """``Kube`` for one process."""

    def __init__(self, inner: MemoryKube, line: Line) -> None:
        self.inner = inner
        self._line = line

    def watch(self, resource: Resource, *args: Any, **more: Any) -> AsyncIterator[WatchEvent]:
        """See ``Kube.watch``."""
        return self._watch(resource, args, more)

    async def _watch(
        self, resource: Resource, args: tuple[Any, ...], more: dict[str, Any]
    ) -> AsyncIterator[WatchEvent]:
        async for event in self.inner.watch(resource, *args, **more):
            await self._line.travel()
            await self._line.until_back()
            yield event

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """See ``Kube.get``."""
        what = f"{resource.plural}/{name}"
        return await self._line.call("get", what, lambda: self.inner.get(resource, name, namespace))

    async def list(self, resource: Resource, *args: Any, **more: Any) -> Listed:
        """See ``Kube.list``."""
        return await self._line.call(
            "list", resource.plural, lambda: self.inner.list(resource, *args, **more)
        )

    async def create(self, resource: Resource, obj: Object, *args: Any, **more: Any) -> Object:
        """See ``Kube.create``."""
        metadata = obj.get("metadata") or {}
        what = f"{resource.plural}/{metadata.get('name') or metadata.get('generateName')}"
        return await self._line.call(
            "create", what, lambda: self.inner.create(resource, obj, *args, **more)
        )

    async def update(self, resource: Resource, obj: Object, **more: Any) -> Object:
        """See ``Kube.update``."""
        what = f"{resource.plural}/{obj['metadata']['name']}"
        return await self._line.call(
            "update", what, lambda: self.inner.update(resource, obj, **more)
        )

    async def patch(
        self, resource: Resource, name: str, patch: Any, *args: Any, **more: Any
    ) -> Object:
        """See ``Kube.patch``."""
        what = f"{resource.plural}/{name}" + ("/status" if more.get("subresource") else "")
        return await self._line.call(
            "patch", what, lambda: self.inner.patch(resource, name, patch, *args, **more)
        )

    async def delete(self, resource: Resource, name: str, *args: Any, **more: Any) -> None:
        """See ``Kube.delete``."""
        await self._line.call(
            "delete",
            f"{resource.plural}/{name}",
            lambda: self.inner.delete(resource, name, *args, **more),
        )

    async def bind(self, pod: str, namespace: str, *, uid: str, node: str) -> None:
        """See ``Kube.bind``."""
        await self._line.call(
            "bind", pod, lambda: self.inner.bind(pod, namespace, uid=uid, node=node)
        )

    async def evict(self, pod: str, namespace: str) -> None:
        """See ``Kube.evict``."""
        await self._line.call("evict", pod, lambda: self.inner.evict(pod, namespace))

    async def version(self) -> str:
        """See ``Kube.version``."""
        return await self._line.call("version", "", self.inner.version)

    async def served_versions(self, group: str) -> tuple[str, ...]:
        """See ``Kube.served_versions``."""
        return await self._line.call(
            "served_versions", group, lambda: self.inner.served_versions(group)
        )

    async def close(self) -> None:
        """See ``Kube.close``."""


class FaultyBus:
    """``Bus`` for one process."""

    def __init__(self, inner: MemoryBus, line: Line) -> None:
        self.inner = inner
        self._line = line

    @property
    def connected(self) -> bool:
        """See ``Bus.connected``."""
        return self.inner.connected

    async def ensure(self, stream: StreamSpec) -> bool:
        """See ``Bus.ensure``."""
        return await self._line.call("ensure", stream.name, lambda: self.inner.ensure(stream))

    async def delete_stream(self, name: str) -> None:
        """See ``Bus.delete_stream``."""
        await self._line.call("delete_stream", name, lambda: self.inner.delete_stream(name))

    async def state(self, stream: str) -> StreamState | None:
        """See ``Bus.state``."""
        return await self._line.call("state", stream, lambda: self.inner.state(stream))

    async def publish(self, message: Outgoing, **more: Any) -> int:
        """See ``Bus.publish``."""
        return await self._line.call(
            "publish", message.subject, lambda: self.inner.publish(message, **more)
        )

    async def last(self, stream: str, subject: str) -> Delivered | None:
        """See ``Bus.last``."""
        return await self._line.call("last", subject, lambda: self.inner.last(stream, subject))

    async def append(self, message: Outgoing, **more: Any) -> int:
        """See ``Bus.append``."""
        return await self._line.call(
            "append", message.subject, lambda: self.inner.append(message, **more)
        )

    def read(self, stream: str, **more: Any) -> AsyncIterator[Delivered]:
        """See ``Bus.read``."""
        return self._read(stream, more)

    async def _read(self, stream: str, more: dict[str, Any]) -> AsyncIterator[Delivered]:
        async for delivered in self.inner.read(stream, **more):
            if not delivered.pending:
                await self._line.travel()
            await self._line.until_caught_up()
            yield delivered

    def consume(self, stream: str, **more: Any) -> AsyncIterator[Delivery]:
        """See ``Bus.consume``."""
        return self._consume(stream, more)

    async def _consume(self, stream: str, more: dict[str, Any]) -> AsyncIterator[Delivery]:
        async for delivery in self.inner.consume(stream, **more):
            await self._line.travel()
            yield _FaultyDelivery(delivery, self._line)

    async def notify(self, subject: str, payload: bytes) -> None:
        """See ``Bus.notify``."""
        await self._line.call("notify", subject, lambda: self.inner.notify(subject, payload))

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """See ``Bus.request``."""
        return await self._line.call(
            "request", subject, lambda: self.inner.request(subject, payload, timeout_s=timeout_s)
        )

    async def serve(self, subject: str, handler: Any, *, queue: str) -> None:
        """See ``Bus.serve``."""
        await self.inner.serve(subject, handler, queue=queue)

    async def acquire(self, key: str, holder: str, *, ttl_s: float) -> bool:
        """See ``Bus.acquire``."""
        if self._line.believes():
            return True
        return await self._line.call(
            "acquire", key, lambda: self.inner.acquire(key, holder, ttl_s=ttl_s)
        )

    async def release(self, key: str, holder: str) -> None:
        """See ``Bus.release``."""
        await self._line.call("release", key, lambda: self.inner.release(key, holder))

    async def close(self) -> None:
        """See ``Bus.close``."""
        await self.inner.close()


class _FaultyDelivery:
    """An answer that is lost means that the message is delivered again."""

    def __init__(self, inner: Delivery, line: Line) -> None:
        self._inner = inner
        self._line = line

    @property
    def message(self) -> Delivered:
        return self._inner.message

    @property
    def attempts(self) -> int:
        return self._inner.attempts

    async def ack(self) -> None:
        await self._line.call("ack", self.message.subject, self._inner.ack)

    async def retry(self, delay_s: float) -> None:
        await self._line.call("retry", self.message.subject, lambda: self._inner.retry(delay_s))

    async def reject(self, reason: str) -> None:
        await self._line.call("reject", self.message.subject, lambda: self._inner.reject(reason))


def doors(process: Process, kube: MemoryKube, bus: MemoryBus, fate: Fate) -> tuple[Kube, Bus]:
    """A process's own connections to the servers."""
    return (
        FaultyKube(kube.peer(), Line(process, fate, KubeUnavailableError, "kube")),
        FaultyBus(bus.peer(), Line(process, fate, BusUnavailableError, "bus")),
    )
