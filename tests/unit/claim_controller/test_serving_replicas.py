"""The number of requests that read the serving replicas does not depend on the number of pools."""

import pytest
from tests.contract.bus.messages import LEASES

from dray.bus.memory import MemoryBus
from dray.runtime.clock import SystemClock
from dray_claim_controller.pools.leases import ServingReplicas

POOLS = 50
LOOKS = 11


class CountingBus(MemoryBus):
    """Counts what is asked about leases."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def leases(self, prefix: str) -> tuple[str, ...]:
        self.asked.append("leases")
        return await super().leases(prefix)

    async def lease_holders(self, prefix: str) -> dict[str, str]:
        self.asked.append("lease_holders")
        return await super().lease_holders(prefix)


async def looks(pools: int) -> tuple[CountingBus, ServingReplicas, list[str]]:
    bus = CountingBus()
    await bus.ensure(LEASES)
    names = [f"p{number}" for number in range(pools)]
    for name in names:
        await bus.acquire(f"domain.{name}", "one", ttl_s=600)
    serving = ServingReplicas(bus, SystemClock())
    for _ in range(LOOKS):
        await serving.look(names)
    return bus, serving, names


async def test_as_many_requests_for_many_pools_as_for_one():
    counted = [(await looks(pools))[0].asked for pools in (1, POOLS)]
    assert counted[0] == counted[1]
    assert len(counted[1]) <= 2 * LOOKS
    assert counted[1].count("lease_holders") == 1 + LOOKS // 5


@pytest.mark.parametrize("changes", ["released", "handed over"])
async def test_changes_of_leases_are_seen(changes: str):
    bus, serving, names = await looks(POOLS)
    assert {serving.served_by(name) for name in names} == {"one"}
    assert serving.take_changed() == names
    await bus.release("domain.p7", "one")
    if changes == "handed over":
        await bus.acquire("domain.p7", "two", ttl_s=600)
    for _ in range(5):
        await serving.look(names)
    assert serving.served_by("p7") == ("" if changes == "released" else "two")
    assert serving.take_changed() == ["p7"]


async def test_pools_that_are_gone_are_forgotten():
    _, serving, names = await looks(2)
    await serving.look(names[:1])
    assert serving.served_by("p1") is None
