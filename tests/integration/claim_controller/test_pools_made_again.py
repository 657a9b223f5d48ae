"""Pools made again: no epoch comes twice, and what was decided before is committed no more."""

import asyncio
from typing import Any

from tests.integration.claim_controller.world import hold_before_writing

from dray.api.claims import last_attempt_before
from dray.bus.topology import log_spec
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, LEASES
from dray_claim_controller.settings import Lease


async def test_a_pool_made_again_never_uses_an_old_epoch(world: Any) -> None:
    await world.ready(await world.start())
    await world.pod()
    await world.until(lambda: world.names(CLAIMS), "the claim exists")
    await world.lose_pool("default-pool")

    async def void() -> bool:
        return bool(claim_from(await world.claim()).void >= last_attempt_before(2))

    await world.until(void, "what was decided for the pool is void")
    await world.pool("default-pool")

    async def renewed() -> bool:
        return await world.epoch() >= 2

    await world.until(renewed, "a higher epoch")


async def test_a_pool_that_nothing_remembers_voids_what_its_former_lives_decided(
    world: Any,
) -> None:
    """An executor sleeps before its first write; nobody else leads while the pool is deleted,
    the bus emptied and the pool made again; another controller leads, and the sleeper wakes."""
    held, wake = asyncio.Event(), asyncio.Event()

    async def hook(name: str, _: Any) -> None:
        if name == "mark" and not wake.is_set():
            held.set()
            await wake.wait()

    kube = world.kube.peer()
    sleeper = await world.ready(await world.start("sleeper", kube=kube, hook=hook, lease=Lease()))
    executor = sleeper.controller.term.executor
    await world.pod()
    await world.decide(await world.decision())
    await world.until(held.is_set, "the executor sleeps")
    sleeper.controller.bus.disconnect()
    kube.hold_watches()
    await world.lose_pool("default-pool")
    world.bus.server.lose_everything()
    created_unix_s = int(world.kube.store.now_unix_s()) + 60
    world.kube.store.now_unix_s = lambda: float(created_unix_s)
    await world.pool("default-pool")
    await world.kube.delete(LEASES, "dray-claim-controller", "dray-system")
    second = await world.ready(await world.start("second", hook=hold_before_writing))

    async def void() -> bool:
        return bool(claim_from(await world.claim()).void)

    await world.until(void, "what any former life decided is void")
    assert second.controller.term.epochs.opened == {"default-pool": created_unix_s}
    assert claim_from(await world.claim()).void == last_attempt_before(created_unix_s)
    wake.set()
    kube.release_watches()
    await executor.idle()
    assert not world.allocations()


async def test_a_pool_without_a_memory_goes_above_every_log_of_its_name(world: Any) -> None:
    """It was deleted and made again; of the logs one is lost, a later one not."""
    await world.bus.ensure(log_spec("default-pool", 3))
    running = await world.ready(await world.start())
    assert running.controller.term.epochs.opened == {"default-pool": 4}


async def test_the_next_leader_closes_a_pool_that_was_deleted_without_a_leader(
    world: Any,
) -> None:
    first = await world.ready(await world.start("first"))
    await world.pod()
    decision = await world.decision()
    await first.stop()
    await world.decide(decision)
    await world.lose_pool("default-pool")
    await world.start("second")

    async def void() -> bool:
        return bool(claim_from(await world.claim()).void >= last_attempt_before(2))

    await world.until(void, "the open decision is void")
    assert not world.allocations()

    async def tombstone() -> bool:
        (domain,) = (await world.facts())["domain"]
        return bool(domain.get("deleted"))

    await world.until(tombstone, "the domain has a tombstone")
