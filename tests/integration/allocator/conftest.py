"""A cluster of allocators on a real nats-server, and one on the bus in memory."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from tests.integration.allocator.cluster import Cluster, until

from benchmarks.reading_server import serving_readings
from dray.bus.jetstream import connect
from dray.bus.memory import MemoryBus
from dray.bus.ports import Bus
from dray.bus.topology import ALLOCATOR
from dray.messages.decisions import PodDecision
from dray_sandbox.nats_server import ADMIN, start_nats
from dray_sandbox.processes import Runner


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A nats-server with an opened domain."""
    runner = Runner(tmp_path / "logs")
    access = await start_nats(runner, tmp_path, sync_interval="2m")
    bus = await connect(access.url, name="c", user=ADMIN, password=access.passwords[ADMIN])

    async def allocator(name: str) -> Bus:
        password = access.passwords[ALLOCATOR]
        return await connect(
            access.url, name=name, role=ALLOCATOR, user=ALLOCATOR, password=password
        )

    made = Cluster(bus, allocator)
    try:
        await made.open()
        async with serving_readings(bus):
            yield made
    finally:
        await made.close()
        await runner.stop_all()


@pytest.fixture
async def memory_cluster() -> AsyncIterator[Cluster]:
    """The same on the bus in memory, where faults can be made."""
    bus = MemoryBus()

    async def peer(name: str) -> Bus:
        return bus.peer()

    made = Cluster(bus, peer)
    try:
        await made.open()
        yield made
    finally:
        await made.close()


@pytest.fixture
def make_cluster() -> Callable[[Bus], Cluster]:
    """The claim-controller's side alone, for allocators that are no part of this process."""

    async def nobody(name: str) -> Bus:
        raise AssertionError(f"{name} is to be a process of its own")

    return lambda bus: Cluster(bus, nobody)


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """Waits for a condition, within a bound."""
    return until


@pytest.fixture
def devices_of() -> Callable[[Sequence[PodDecision]], list[str]]:
    """The devices that decisions give, in order."""

    def listed(decisions: Sequence[PodDecision]) -> list[str]:
        return [
            share.id.device
            for decision in decisions
            for claim in decision.claims
            for share in claim.allocation.devices
        ]

    return listed
