"""Slow and unreliable connections of one process to the in-memory API server and bus."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from dray.api.errors import DrayError
from dray.bus.memory import MemoryBus, acquire_each
from dray.bus.ports import (
    Bus,
    BusUnavailableError,
    Delivery,
    Handler,
    Request,
    StoreUse,
    StreamSpec,
    StreamState,
)
from dray.bus.topology import ALLOCATOR, NODE_AGENT, WEBHOOK, reading_subject
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    Changed,
    Deleted,
    Kube,
    KubeUnavailableError,
    Listed,
    NotFoundError,
    Object,
    Resource,
    Transform,
    WatchEvent,
)
from dray.messages.base import Delivered, Outgoing
from dray.messages.rpc import Reading, ReadingReply
from tools.simulation.answers import bus_error, kube_error
from tools.simulation.faults import FaultPolicy, FaultyConnection
from tools.simulation.loop import CURRENT, Process


class FaultyKube:
    """``Kube`` for one process."""

    def __init__(self, inner: MemoryKube, connection: FaultyConnection) -> None:
        self.inner = inner
        self._connection = connection

    def watch(self, resource: Resource, *args: Any, **more: Any) -> AsyncIterator[WatchEvent]:
        """See ``Kube.watch``."""
        return self._watch(resource, args, more)

    async def _watch(
        self, resource: Resource, args: tuple[Any, ...], more: dict[str, Any]
    ) -> AsyncIterator[WatchEvent]:
        transform: Transform | None = more.pop("transform", None)
        async for event in self.inner.watch(resource, *args, **more):
            await self._connection.travel()
            await self._connection.wait_until_back()
            match event:
                case Listed():
                    yield self._listed(resource, event, transform)
                case Changed(obj):
                    yield Changed(self._connection.as_read(resource, obj))
                case Deleted(obj):
                    yield Deleted(self._connection.as_read(resource, obj))

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """See ``Kube.get``."""
        found = await self._connection.call(
            "get",
            f"{resource.plural}/{name}",
            lambda: self.inner.get(resource, name, namespace),
            namespace=namespace,
        )
        return self._connection.as_read(resource, found)

    async def list(
        self, resource: Resource, *args: Any, transform: Transform | None = None, **more: Any
    ) -> Listed:
        """See ``Kube.list``."""
        listed = await self._connection.call(
            "list", resource.plural, lambda: self.inner.list(resource, *args, **more)
        )
        return self._listed(resource, listed, transform)

    def _listed(self, resource: Resource, listed: Listed, transform: Transform | None) -> Listed:
        as_read = (self._connection.as_read(resource, obj) for obj in listed.objects)
        return Listed(
            tuple(as_read if transform is None else map(transform, as_read)),
            listed.resource_version,
        )

    async def create(
        self, resource: Resource, obj: Object, namespace: str = "", **more: Any
    ) -> Object:
        """See ``Kube.create``."""
        metadata = obj.get("metadata") or {}
        made = await self._connection.call(
            "create",
            f"{resource.plural}/{metadata.get('name') or metadata.get('generateName')}",
            lambda: self.inner.create(resource, obj, namespace, **more),
            namespace=namespace or metadata.get("namespace", ""),
        )
        return self._connection.as_read(resource, made)

    async def update(self, resource: Resource, obj: Object, **more: Any) -> Object:
        """See ``Kube.update``."""
        written = await self._connection.call(
            "update",
            f"{resource.plural}/{obj['metadata']['name']}",
            lambda: self.inner.update(resource, obj, **more),
            namespace=obj["metadata"].get("namespace", ""),
        )
        return self._connection.as_read(resource, written)

    async def patch(
        self, resource: Resource, name: str, patch: Any, namespace: str = "", **more: Any
    ) -> Object:
        """See ``Kube.patch``."""
        written = await self._connection.call(
            "patch",
            f"{resource.plural}/{name}" + ("/status" if more.get("subresource") else ""),
            lambda: self.inner.patch(resource, name, patch, namespace, **more),
            namespace=namespace,
            timeout_s=more.get("timeout_s"),
        )
        return self._connection.as_read(resource, written)

    async def delete(self, resource: Resource, name: str, namespace: str = "", **more: Any) -> None:
        """See ``Kube.delete``; no error if the object is absent."""
        with contextlib.suppress(NotFoundError):
            await self._connection.call(
                "delete",
                f"{resource.plural}/{name}",
                lambda: self.inner.delete(resource, name, namespace, **more),
                namespace=namespace,
            )

    async def bind(self, pod: str, namespace: str, **wanted: Any) -> None:
        """See ``Kube.bind``."""
        await self._connection.call(
            "bind",
            pod,
            lambda: self.inner.bind(pod, namespace, **wanted),
            namespace=namespace,
            timeout_s=wanted.get("timeout_s"),
        )

    async def evict(self, pod: str, namespace: str, *, uid: str) -> None:
        """See ``Kube.evict``."""
        await self._connection.call(
            "evict", pod, lambda: self.inner.evict(pod, namespace, uid=uid), namespace=namespace
        )

    async def version(self) -> str:
        """See ``Kube.version``."""
        return await self._connection.call("version", "", self.inner.version)

    async def served_versions(self, group: str) -> tuple[str, ...]:
        """See ``Kube.served_versions``."""
        return await self._connection.call(
            "served_versions", group, lambda: self.inner.served_versions(group)
        )

    async def close(self) -> None:
        """See ``Kube.close``."""


class FaultyBus:
    """``Bus`` for one process."""

    def __init__(self, inner: MemoryBus, connection: FaultyConnection) -> None:
        self.inner = inner
        self._connection = connection

    @property
    def connected(self) -> bool:
        """See ``Bus.connected``."""
        return self.inner.connected

    @property
    def problem(self) -> str | None:
        """See ``Bus.problem``."""
        return self.inner.problem

    @property
    def max_payload_bytes(self) -> int | None:
        """See ``Bus.max_payload_bytes``."""
        return self.inner.max_payload_bytes

    async def ensure(self, stream: StreamSpec) -> bool:
        """See ``Bus.ensure``."""
        return await self._connection.call("ensure", stream.name, lambda: self.inner.ensure(stream))

    async def raise_replicas(self, stream: str) -> None:
        """See ``Bus.raise_replicas``."""
        await self._connection.call(
            "raise_replicas", stream, lambda: self.inner.raise_replicas(stream)
        )

    async def open_reading(self, reading: Reading) -> ReadingReply:
        """See ``Bus.open_reading``."""
        return await self._connection.call(
            "open_reading", reading.stream, lambda: self.inner.open_reading(reading)
        )

    async def delete_stream(self, name: str) -> None:
        """See ``Bus.delete_stream``."""
        await self._connection.call("delete_stream", name, lambda: self.inner.delete_stream(name))

    async def streams(self, prefix: str) -> tuple[StreamState, ...]:
        """See ``Bus.streams``."""
        return await self._connection.call("streams", prefix, lambda: self.inner.streams(prefix))

    async def purge(self, stream: str, below: int) -> None:
        """See ``Bus.purge``."""
        await self._connection.call("purge", stream, lambda: self.inner.purge(stream, below))

    async def store_use(self) -> StoreUse:
        """See ``Bus.store_use``."""
        return await self._connection.call("store_use", "", self.inner.store_use)

    async def state(self, stream: str) -> StreamState | None:
        """See ``Bus.state``."""
        return await self._connection.call("state", stream, lambda: self.inner.state(stream))

    async def publish(self, message: Outgoing, **more: Any) -> int:
        """See ``Bus.publish``."""
        return await self._connection.call(
            "publish",
            message.subject,
            lambda: self.inner.publish(message, **more),
            payload=message.payload,
        )

    async def publish_all(
        self, batches: Iterable[Sequence[Outgoing]], **more: Any
    ) -> list[int | DrayError]:
        """See ``Bus.publish_all``; each message has its own outcome."""
        outcomes: list[int | DrayError] = []
        for batch in batches:
            outcomes += await asyncio.gather(*(self._outcome(one, more) for one in batch))
            if any(isinstance(one, DrayError) for one in outcomes[-len(batch) :]):
                break
        return outcomes

    async def _outcome(self, message: Outgoing, more: dict[str, Any]) -> int | DrayError:
        try:
            return await self.publish(message, **more)
        except DrayError as error:
            return error

    async def last(self, stream: str, subject: str) -> Delivered | None:
        """See ``Bus.last``."""
        return await self._connection.call(
            "last", subject, lambda: self.inner.last(stream, subject)
        )

    async def append(self, message: Outgoing, **more: Any) -> int:
        """See ``Bus.append``."""
        return await self._connection.call(
            "append",
            message.subject,
            lambda: self.inner.append(message, **more),
            payload=message.payload,
        )

    def read(self, stream: str, **more: Any) -> AsyncIterator[Delivered]:
        """See ``Bus.read``."""
        return self._read(stream, more)

    async def _read(self, stream: str, more: dict[str, Any]) -> AsyncIterator[Delivered]:
        async for delivered in self.inner.read(stream, **more):
            if not delivered.pending:
                await self._connection.travel()
            await self._connection.wait_until_caught_up()
            yield delivered

    async def read_batches(self, stream: str, **more: Any) -> AsyncIterator[Sequence[Delivered]]:
        """See ``Bus.read_batches``; batches of one, because each message may be late."""
        async for delivered in self.read(stream, **more):
            yield (delivered,)

    def consume(self, stream: str, **more: Any) -> AsyncIterator[Delivery]:
        """See ``Bus.consume``."""
        return self._consume(stream, more)

    async def _consume(self, stream: str, more: dict[str, Any]) -> AsyncIterator[Delivery]:
        async for delivery in self.inner.consume(stream, **more):
            await self._connection.travel()
            yield _FaultyDelivery(delivery, self._connection)

    async def notify(self, subject: str, payload: bytes) -> None:
        """See ``Bus.notify``."""
        await self._connection.call("notify", subject, lambda: self.inner.notify(subject, payload))

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """See ``Bus.request``."""
        return await self._connection.call(
            "request", subject, lambda: self.inner.request(subject, payload, timeout_s=timeout_s)
        )

    async def serve(self, subject: str, handler: Handler, *, queue: str) -> None:
        """See ``Bus.serve``; the handler runs in this process, which may be stopped meanwhile."""

        async def answer(request: Request) -> bytes | None:
            token = CURRENT.set(self._connection.process)
            try:
                answering = asyncio.ensure_future(handler(request))
            finally:
                CURRENT.reset(token)
            await asyncio.wait([answering])
            if answering.cancelled():  # The process ended: no answer comes.
                await asyncio.Event().wait()
            return answering.result()

        await self.inner.serve(subject, answer, queue=queue)

    async def acquire(self, key: str, holder: str, *, ttl_s: float) -> bool:
        """See ``Bus.acquire``."""
        if self._connection.grants_every_lease():
            return True
        return await self._connection.call(
            "acquire", key, lambda: self.inner.acquire(key, holder, ttl_s=ttl_s)
        )

    async def acquire_all(
        self, keys: Sequence[str], holder: str, *, ttl_s: float
    ) -> list[bool | DrayError]:
        """See ``Bus.acquire_all``."""
        return await acquire_each(self.acquire, keys, holder, ttl_s=ttl_s)

    async def release(self, key: str, holder: str) -> None:
        """See ``Bus.release``."""
        await self._connection.call("release", key, lambda: self.inner.release(key, holder))

    async def lease_holders(self, prefix: str) -> dict[str, str]:
        """See ``Bus.lease_holders``."""
        return await self._connection.call(
            "lease_holders", prefix, lambda: self.inner.lease_holders(prefix)
        )

    async def leases(self, prefix: str) -> tuple[str, ...]:
        """See ``Bus.leases``; empty in a split brain."""
        if self._connection.grants_every_lease():
            return ()
        return await self._connection.call("leases", prefix, lambda: self.inner.leases(prefix))

    async def close(self) -> None:
        """See ``Bus.close``."""
        await self.inner.close()


class _FaultyDelivery:
    """A delivery whose acknowledgement may be lost, so that the message is delivered again."""

    def __init__(self, inner: Delivery, connection: FaultyConnection) -> None:
        self._inner = inner
        self._connection = connection

    @property
    def message(self) -> Delivered:
        return self._inner.message

    @property
    def attempts(self) -> int:
        return self._inner.attempts

    async def ack(self) -> None:
        await self._connection.call("ack", self.message.subject, self._inner.ack)

    async def retry(self, delay_s: float) -> None:
        await self._connection.call(
            "retry", self.message.subject, lambda: self._inner.retry(delay_s)
        )

    async def reject(self, reason: str) -> None:
        await self._connection.call(
            "reject", self.message.subject, lambda: self._inner.reject(reason)
        )


def connections(
    process: Process, kube: MemoryKube, bus: MemoryBus, policy: FaultPolicy
) -> tuple[Kube, Bus]:
    """A process' connections to the servers."""
    user, readings = _identity(process.name)
    return (
        FaultyKube(
            kube.peer(), FaultyConnection(process, policy, KubeUnavailableError, "kube", kube_error)
        ),
        FaultyBus(
            bus.peer(user, readings),
            FaultyConnection(process, policy, BusUnavailableError, "bus", bus_error),
        ),
    )


def _identity(process: str) -> tuple[str, str]:
    """The process' user on the bus, and the subject of its requests for consumers, if any."""
    kind, _, rest = process.partition("-")
    match kind:
        case "alloc":
            return ALLOCATOR, reading_subject(ALLOCATOR)
        case "agent":
            return rest, reading_subject(NODE_AGENT, rest)
        case "webhook":
            return WEBHOOK, reading_subject(WEBHOOK)
    return "", ""
