"""Allocators on one bus, and a stand-in for the claim-controller."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import CollectorRegistry

from dray.api import names
from dray.api.claims import Claim, ClaimSpec, DeviceRequest
from dray.api.devices import Capacity, Device, DeviceClass, RequestPolicy, ResourceSlice
from dray.api.errors import DrayError
from dray.api.pods import Node, Pod, PodClaim, Policy, Pool
from dray.bus.memory import acquire_each
from dray.bus.ports import Bus
from dray.bus.topology import FACTS_STREAM, STREAMS, log_spec
from dray.messages.base import Message, Outgoing, encode
from dray.messages.decisions import (
    AnyRecord,
    Decided,
    Opened,
    PodDecision,
    decode_record,
    log_stream,
    log_subject,
)
from dray.messages.facts import (
    ClaimObserved,
    DeviceClassObserved,
    DomainObserved,
    NodeObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    SliceObserved,
    Synced,
    Tick,
)
from dray_allocator.service.replica import Replica as AllocatorReplica
from dray_allocator.service.telemetry import AllocatorMetrics
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.options import AllocatorOptions

BOUND_S = 60.0
POOL = "pool"


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition, within a bound."""
    async with asyncio.timeout(BOUND_S):
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(0.01)


class Wire:
    """A bus whose appends can be held, and whose leases can be forced."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.open = asyncio.Event()
        self.open.set()
        self.held = 0
        self.believes = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._bus, name)

    async def append(self, message: Outgoing, **expected: object) -> int:
        if not self.open.is_set():
            self.held += 1
            await self.open.wait()
        return await self._bus.append(message, **expected)  # type: ignore[arg-type]

    async def acquire(self, key: str, holder: str, *, ttl_s: float) -> bool:
        return self.believes or await self._bus.acquire(key, holder, ttl_s=ttl_s)

    async def acquire_all(
        self, keys: Sequence[str], holder: str, *, ttl_s: float
    ) -> list[bool | DrayError]:
        return await acquire_each(self.acquire, keys, holder, ttl_s=ttl_s)

    async def leases(self, prefix: str) -> tuple[str, ...]:
        return () if self.believes else await self._bus.leases(prefix)


class Replica:
    """One allocator within this process."""

    def __init__(self, name: str, bus: Bus) -> None:
        self.name = name
        self.bus = bus
        self.wire = Wire(bus)
        self.state = AllocatorState(AllocatorOptions(writer=name))
        self.registry = CollectorRegistry()
        self.metrics = AllocatorMetrics(self.state, self.registry)
        self.shell = AllocatorReplica(
            self.wire,  # type: ignore[arg-type]
            self.state,
            self.metrics,
            lease_ttl_s=1.0,
            lease_renewal_s=0.2,
        )
        self._task = asyncio.create_task(self.shell.run())

    @property
    def serves(self) -> bool:
        """Whether it may append now."""
        return self.serves_pool(POOL)

    def serves_pool(self, pool: str) -> bool:
        """The same of any pool."""
        domain = self.state.domains.get(pool)
        return domain is not None and self.state.ready(domain)

    @property
    def conflicts(self) -> float:
        """Appends refused so far."""
        return self.metrics.conflicts._value.get()

    async def die(self) -> None:
        """Stop without giving anything back."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Stop in order."""
        await self.die()
        await self.shell.stop()


class Cluster:
    """The claim-controller's side: facts out, the log in."""

    def __init__(self, bus: Bus, connection: Callable[[str], Awaitable[Bus]]) -> None:
        self.bus = bus
        self._connection = connection
        self.replicas: list[Replica] = []
        self._buses: list[Bus] = [bus]
        self._revision = 0
        self._now_unix_s = 1_000_000.0

    async def open(self, epoch: int = 1) -> None:
        """Streams, configuration, an opened log and complete facts."""
        for spec in STREAMS:
            await self.bus.ensure(spec)
        await self.publish(
            DeviceClassObserved(revision=1, device_class=DeviceClass(names.DEVICE_CLASS)),
            PolicyObserved(revision=1, policy=Policy("policy", "u", placement=names.COMPACT_FIRST)),
            PoolObserved(revision=1, pool=Pool(POOL, "u", template="policy")),
        )
        await self.open_log(epoch)
        await self.publish(Synced(revision=self.next(), instance="c"))
        await self.tick()

    async def open_log(self, epoch: int, pool: str = POOL) -> None:
        """A new log, then the fact that announces it."""
        await self.bus.ensure(log_spec(pool, epoch))
        opened = Opened(domain=pool, epoch=epoch, writer="c", facts_sequence=0, now_unix_s=0.0)
        message = encode(opened, source="/c").to(log_subject(pool, epoch))
        await self.bus.append(message, expected_last=0)
        await self.publish(DomainObserved(revision=epoch, domain=pool, epoch=epoch))

    async def add_pool(self, pool: str) -> None:
        """Another pool, with its log."""
        await self.publish(PoolObserved(revision=1, pool=Pool(pool, "u", template="policy")))
        await self.open_log(1, pool)

    def next(self) -> int:
        """The next resourceVersion."""
        self._revision += 1
        return self._revision

    async def publish(self, *facts: Message) -> None:
        """Facts, in order."""
        for fact in facts:
            await self.bus.publish(encode(fact, source="/c"))

    async def tick(self, by_s: float = 1.0) -> None:
        """Let time pass."""
        self._now_unix_s += by_s
        await self.publish(Tick(revision=self.next(), now_unix_s=self._now_unix_s))

    async def node(self, name: str, cards: int = 1, pool: str = POOL) -> None:
        """A node of whole cards of 40Gi."""
        policy = RequestPolicy(default="40Gi", minimum="1")
        capacity = {names.VIRTUAL_VRAM: Capacity("40Gi", policy)}
        devices = tuple(
            Device(f"{name}-gpu{n}", capacity=capacity, allow_multiple_allocations=True)
            for n in range(cards)
        )
        slice_ = ResourceSlice(name, name, names.DRIVER, name, 1, 1, name, devices)
        made = Node(name, name, pool, cpu_milli=64_000, memory_bytes=2**40, pods=1000)
        await self.publish(
            SliceObserved(revision=self.next(), slice=slice_),
            NodeObserved(revision=self.next(), node=made),
        )

    async def submit(self, uid: str, vram: str = "40Gi", pool: str = POOL) -> None:
        """A pod and its claim."""
        request = DeviceRequest("r", names.DEVICE_CLASS, capacity={names.VIRTUAL_VRAM: vram})
        claim = Claim(f"c-{uid}", "ns", f"{uid}-gpu", 1, pool, ClaimSpec((request,)), uid, uid)
        reference = PodClaim(names.CLAIM_REFERENCE, f"{uid}-gpu")
        pod = Pod(uid, "ns", uid, 1, pool, names.DRAY_SCHEDULER, claims=(reference,))
        await self.publish(
            ClaimObserved(revision=self.next(), claim=claim),
            PodObserved(revision=self.next(), pod=pod),
        )

    async def position(self) -> int:
        """The last fact published."""
        state = await self.bus.state(FACTS_STREAM)
        assert state is not None
        return state.last_sequence

    async def log(self, epoch: int = 1, pool: str = POOL) -> list[AnyRecord]:
        """Every record of the log."""
        stream = log_stream(pool, epoch)
        state = await self.bus.state(stream)
        records: list[AnyRecord] = []
        if state is None or not state.last_sequence:
            return records
        async for delivered in self.bus.read(stream):
            records.append(decode_record(delivered.payload))
            if delivered.sequence == state.last_sequence:
                break
        return records

    async def decisions(self, epoch: int = 1, pool: str = POOL) -> list[PodDecision]:
        """Every decision in the log."""
        records = await self.log(epoch, pool)
        return [pod for record in records if isinstance(record, Decided) for pod in record.pods]

    async def replica(self, name: str) -> Replica:
        """Another allocator."""
        bus = await self._connection(name)
        self._buses.append(bus)
        self.replicas.append(Replica(name, bus))
        return self.replicas[-1]

    async def close(self) -> None:
        """Stop everything."""
        for replica in self.replicas:
            await replica.die()
        for bus in reversed(self._buses):
            await bus.close()
