"""Lost logs are opened again, and nothing decided in them is committed any more."""

import asyncio
from typing import Any

import pytest
from tests.integration.claim_controller.kubernetes import POOL
from tests.integration.claim_controller.test_trimming import AT_ONCE, checkpoint, something
from tests.integration.claim_controller.world import hold_before_writing

from dray.api.claims import first_attempt, last_attempt_before
from dray.bus.topology import FACTS_STREAM, LEASES_STREAM, STREAMS
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, LEASES, PODS, POOLS, ConflictError
from dray.messages.decisions import decode_record, log_stream
from dray_claim_controller.settings import Lease, Streams


async def test_a_new_pool_gets_epoch_one_and_an_opened_log(world: Any) -> None:
    await world.ready(await world.start())
    await world.pool("later")

    async def opened() -> Any:
        state = await world.bus.state(log_stream("later", 1))
        return state is not None and state.last_sequence == 1

    await world.until(opened, "the log is opened")
    async for delivered in world.bus.read(log_stream("later", 1)):
        assert type(decode_record(delivered.payload)).__name__ == "Opened"
        break
    assert await world.epoch("later") == 1


async def test_a_restart_keeps_the_epoch(world: Any) -> None:
    first = await world.ready(await world.start("first"))
    await first.stop()
    second = await world.ready(await world.start("second"))

    assert second.controller.term.epochs.opened == {"default-pool": 1}


async def test_an_emptied_bus_means_a_new_epoch_and_nothing_is_allocated_twice(world: Any) -> None:
    """An executor of the old epoch sleeps before its commit, NATS loses its store, another
    controller opens the new epoch, and only then the sleeper wakes."""
    held, wake = asyncio.Event(), asyncio.Event()

    async def hook(name: str, _: Any) -> None:
        if name == "commit" and not wake.is_set():
            held.set()
            await wake.wait()

    sleeper = await world.ready(await world.start("sleeper", hook=hook, lease=Lease()))
    executor = sleeper.controller.term.executor
    await world.pod()
    await world.decide(await world.decision())
    await world.until(held.is_set, "the executor sleeps")
    sleeper.controller.bus.disconnect()
    await world.kube.delete(LEASES, "dray-claim-controller", "dray-system")
    await world.ready(await world.start("second", hook=hold_before_writing))

    world.bus.server.lose_everything()

    async def renewed() -> bool:
        return await world.bus.state(log_stream("default-pool", 2)) is not None

    await world.until(renewed, "the log of epoch 2")
    assert claim_from(await world.claim()).void == last_attempt_before(2)
    wake.set()
    await executor.idle()
    assert claim_from(await world.claim()).allocation is None
    assert not world.allocations()


async def test_the_new_epochs_decision_is_carried_out(world: Any) -> None:
    running = await world.ready(await world.start())
    await world.pod()
    await world.until(lambda: world.names(CLAIMS), "the claim exists")
    world.bus.server.lose_everything()
    await world.until(
        lambda: running.controller.term.epochs.opened == {"default-pool": 2}, "epoch 2"
    )
    new = await world.decision(device="gpu-1", attempt=first_attempt(2))
    await world.decide(new, epoch=2)
    await world.until(
        lambda: world.kube.store.get(PODS, "workload", "default")["spec"].get("nodeName"),
        "the pod is bound in the new epoch",
    )
    devices_in_use = claim_from(await world.claim()).allocation.devices
    assert [device.id.device for device in devices_in_use] == ["gpu-1"]


async def test_claims_without_a_mark_are_voided_too(world: Any) -> None:
    await world.ready(await world.start())
    await world.pod()
    await world.until(lambda: world.names(CLAIMS), "the claim exists")
    world.bus.server.lose_everything()

    async def void() -> bool:
        return bool(claim_from(await world.claim()).void)

    await world.until(void, "the claim is void though nobody had begun")


async def test_a_lost_log_alone_is_opened_again_and_its_allocations_stay(world: Any) -> None:
    await world.ready(await world.start())
    await world.pod()
    await world.decide(await world.decision())
    await world.bound()
    await world.bus.delete_stream(log_stream("default-pool", 1))

    async def renewed() -> bool:
        return await world.bus.state(log_stream("default-pool", 2)) is not None

    await world.until(renewed, "the log of epoch 2")
    claim = claim_from(await world.claim())
    assert claim.allocation is not None
    assert claim.void == 0


async def test_facts_that_were_lost_alone_are_published_again_in_a_new_epoch(world: Any) -> None:
    running = await world.ready(await world.start())
    await world.bus.delete_stream(FACTS_STREAM)
    await world.until(
        lambda: running.controller.term.epochs.opened == {"default-pool": 2}, "epoch 2"
    )

    facts = await world.facts()
    assert {"pool", "node", "slice", "deviceclass", "synced", "cluster"} <= facts.keys()


async def test_a_deleted_stream_of_leases_is_made_again(world: Any) -> None:
    """Allocators serve by leases, and may make no streams."""
    await world.ready(await world.start(streams=Streams(look_every=0.02)))
    await world.bus.delete_stream(LEASES_STREAM)

    async def back() -> bool:
        return await world.bus.state(LEASES_STREAM) is not None

    await world.until(back, "the stream of leases")


async def test_facts_published_again_by_a_leader_that_died_at_once_mean_a_new_epoch(
    world: Any,
) -> None:
    """Without their facts nobody knows whether logs are complete, nor whose claims they name."""
    first = await world.ready(await world.start("first"))
    await first.stop()
    await world.bus.delete_stream(FACTS_STREAM)
    for spec in STREAMS:
        await world.bus.ensure(spec)

    second = await world.ready(await world.start("second"))
    assert second.controller.term.epochs.opened == {"default-pool": 2}
    await second.stop()
    third = await world.ready(await world.start("third"))
    assert third.controller.term.epochs.opened == {"default-pool": 2}


async def test_a_log_that_ends_below_what_was_seen_is_a_lost_one(world: Any) -> None:
    """A store brought back from before the records that somebody acted upon."""
    first = await world.ready(await world.start("first"))
    await first.stop()
    log = {"status": {"decisionLog": {"epoch": 1, "lastSequence": 99}}}
    await world.kube.patch(POOLS, "default-pool", log, subresource="status")
    second = await world.ready(await world.start("second"))

    assert second.controller.term.epochs.opened == {"default-pool": 2}


async def test_a_lost_log_stays_lost_when_it_has_grown_before_its_next_epoch_was_written(
    world: Any,
) -> None:
    """An allocator goes on with the rest of the log while the leader's write conflicts."""
    first = await world.ready(await world.start("first"))
    await first.stop()
    log = {"status": {"decisionLog": {"epoch": 1, "lastSequence": 3}}}
    await world.kube.patch(POOLS, "default-pool", log, subresource="status")
    kube = world.kube.peer()
    patch, conflicts = kube.patch, []

    async def conflicting(resource: Any, name: str, body: Any, **options: Any) -> Any:
        if resource is POOLS and "decisionLog" in body.get("status", {}) and not conflicts:
            conflicts.append(name)
            for _ in range(2):
                await world.append(something())
            raise ConflictError("the object has been modified")
        return await patch(resource, name, body, **options)

    kube.patch = conflicting
    second = await world.ready(await world.start("second", kube=kube))
    assert conflicts
    assert second.controller.term.epochs.opened == {"default-pool": 2}


async def test_a_log_without_the_checkpoint_that_was_published_is_a_lost_one(world: Any) -> None:
    """While nobody led it lost its newest record, and has grown again since."""
    first = await world.ready(await world.start("first", logs=AT_ONCE))
    last = await world.append(checkpoint())

    async def published() -> bool:
        (domain,) = (await world.facts())["domain"]
        return [one["sequence"] for one in domain.get("checkpoints", [])] == [last]

    await world.until(published, "the fact says where readers may begin")
    await first.stop()
    world.bus.server.named(log_stream("default-pool", 1)).lose_tail(1)
    assert await world.append(something()) == last
    second = await world.start("second")
    await world.until(
        lambda: second.controller.term and second.controller.term.epochs.opened.get(POOL) == 2,
        "epoch 2",
    )


async def test_a_log_that_lost_unread_records_is_opened_again(world: Any) -> None:
    """Its reader misses nothing, but nobody can decide in a log without its first record."""
    running = await world.ready(await world.start())
    executions = running.controller.term.followers.executions["default-pool"]
    await world.until(lambda: executions.sequence == 1)
    executions.sequence = 0
    world.bus.server.named(log_stream("default-pool", 1)).lose_tail(1)
    followed = running.controller.term.followers.executions
    await world.until(lambda: followed["default-pool"].epoch == 2)
    state = await world.bus.state(log_stream("default-pool", 2))
    assert state.last_sequence == 1


async def test_a_bus_that_is_merely_away_stops_no_execution(world: Any) -> None:
    held, wake = asyncio.Event(), asyncio.Event()

    async def hook(name: str, _: Any) -> None:
        if name == "commit" and not wake.is_set():
            held.set()
            await wake.wait()

    running = await world.ready(await world.start(hook=hook))
    await world.pod()
    await world.decide(await world.decision())
    await world.until(held.is_set, "the execution is under way")
    running.controller.bus.disconnect()
    wake.set()
    await world.bound()
    running.controller.bus.reconnect()

    assert running.controller.term.epochs.opened == {"default-pool": 1}


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_pod_committed_in_a_lost_log_is_bound_in_the_next_epoch(
    world: Any, is_deleted: bool
) -> None:
    """The controller died between commit and binding, and NATS lost the order. A claim that is
    deleted meanwhile stays, because it is reserved for the pod."""

    async def hook(name: str, _: Any) -> None:
        if name == "bind":
            await asyncio.Event().wait()

    first = await world.ready(await world.start("first", hook=hook))
    await world.pod()
    await world.decide(await world.decision())
    await world.until(world.allocations, "the claim is committed")
    await first.stop()
    world.bus.server.lose_everything()
    if is_deleted:
        await world.kube.delete(CLAIMS, (await world.claim())["metadata"]["name"], "default")
        assert claim_from(await world.claim()).deleting
    second = await world.start("second")
    await world.until(world.bindings, "the pod is bound")

    assert second.controller.term.epochs.opened == {"default-pool": 2}
    assert world.bindings() == ["node-1"]
    assert len(world.allocations()) == 1
