"""Decision logs are trimmed below checkpoints, and logs that nobody needs go."""

from typing import Any

from tests.integration.claim_controller.kubernetes import POOL
from tests.integration.claim_controller.world import hold_before_writing

from dray.bus.topology import DEAD_STREAM, log_spec
from dray.kube.ports import LEASES, POOLS
from dray.messages.decisions import (
    Checkpoint,
    CheckpointPart,
    NodeLeft,
    PodDecision,
    ReservedClaim,
    log_stream,
)
from dray_claim_controller.settings import Logs

AT_ONCE = Logs(keep_for=0.0, trim_every=0.02)


def checkpoint(*pods: PodDecision, parts: int = 1, now_unix_s: float = 0.0) -> Checkpoint:
    return Checkpoint(
        **head() | {"now_unix_s": now_unix_s},
        part=1,
        parts=parts,
        in_flight=pods,
        reserved=tuple(
            ReservedClaim(uid=claim.uid, attempt=claim.attempt, decided_unix_s=0.0)
            for pod in pods
            for claim in pod.claims
        ),
    )


def head() -> dict[str, Any]:
    return {"domain": POOL, "epoch": 1, "writer": "t", "facts_sequence": 1, "now_unix_s": 0.0}


def something() -> NodeLeft:
    return NodeLeft(**head(), node="none", node_revision=1)


async def names(world: Any, prefix: str) -> list[str]:
    return [state.name for state in await world.bus.streams(prefix)]


async def first_sequence(world: Any, epoch: int = 1) -> int:
    state = await world.bus.state(log_stream(POOL, epoch))
    return int(state.first_sequence)


async def trimmed(world: Any, to: int) -> None:
    async def is_trimmed() -> bool:
        return await first_sequence(world) == to

    await world.until(is_trimmed, f"the log begins with record {to}")


async def test_a_log_is_trimmed_below_the_last_checkpoint_but_one(world: Any) -> None:
    await world.ready(await world.start(logs=AT_ONCE))
    starts = []
    for _ in range(3):
        await world.append(something())
        starts.append(await world.append(checkpoint()))
    last = await world.append(something())
    await trimmed(world, starts[1])

    async def published() -> bool:
        (domain,) = (await world.facts())["domain"]
        return [one["sequence"] for one in domain.get("checkpoints", [])] == starts[1:]

    await world.until(published, "the fact says where readers may begin")
    state = await world.bus.state(log_stream(POOL, 1))
    assert state.last_sequence == last


async def test_a_checkpoint_without_its_last_part_trims_nothing(world: Any) -> None:
    await world.ready(await world.start(logs=AT_ONCE))
    begun = await world.append(checkpoint(parts=2))
    await world.append(something())
    starts = [await world.append(checkpoint()), await world.append(checkpoint(parts=2))]
    await world.append(CheckpointPart(**head(), part=2, parts=2))
    await trimmed(world, starts[0])
    assert begun < starts[0]


async def test_a_leader_that_takes_over_carries_out_what_only_the_checkpoint_tells(
    world: Any,
) -> None:
    first = await world.ready(await world.start("first", hook=hold_before_writing, logs=AT_ONCE))
    await world.pod()
    decision = await world.decision()
    decided = await world.decide(decision)
    starts = [await world.append(checkpoint(decision)) for _ in range(2)]
    await trimmed(world, starts[0])
    assert decided < starts[0]
    await first.stop()
    await world.start("second")
    await world.until(world.allocations, "the decision is carried out")


async def test_records_stay_as_long_as_people_may_ask_for_them(world: Any) -> None:
    running = await world.ready(await world.start(logs=Logs(keep_for=3600.0, trim_every=0.02)))
    (tick,) = (await world.facts())["tick"]
    for _ in range(3):
        await world.append(checkpoint(now_unix_s=tick["now_unix_s"]))

    async def measured() -> bool:
        return len(running.controller.term.followers.executions[POOL].checkpoints) == 3

    await world.until(measured, "three checkpoints were read")
    await running.controller.term.trimmer.trim(POOL)
    assert await first_sequence(world) == 1


async def test_a_log_that_is_too_large_is_trimmed_whatever_its_age(world: Any) -> None:
    keep = Logs(keep_for=3600.0, keep_bytes=1, trim_every=0.02)
    await world.ready(await world.start(logs=keep))
    starts = [await world.append(checkpoint()) for _ in range(3)]
    await trimmed(world, starts[1])


async def test_epochs_before_the_last_but_one_go(world: Any) -> None:
    for epoch in (1, 2, 3):
        await world.bus.ensure(log_spec(POOL, epoch))
    running = await world.ready(await world.start(logs=AT_ONCE))
    assert running.controller.term.epochs.opened == {POOL: 4}

    async def left() -> bool:
        return await names(world, "DRAY_DEC") == [log_stream(POOL, 3), log_stream(POOL, 4)]

    await world.until(left, "two epochs are left")


async def test_the_logs_of_a_deleted_pool_go_and_its_epochs_are_remembered(world: Any) -> None:
    """Also by the next leader, long after the streams are gone."""
    first = await world.ready(await world.start("first", logs=AT_ONCE))
    await world.kube.delete(POOLS, POOL)

    async def gone() -> bool:
        return not await world.bus.streams("DRAY_DEC")

    await world.until(gone, "the logs are gone")
    await first.stop()
    await world.kube.delete(LEASES, "dray-claim-controller", "dray-system")
    await world.pool(POOL)
    second = await world.ready(await world.start("second", logs=AT_ONCE))
    assert second.controller.term.epochs.opened == {POOL: 2}


async def test_a_log_that_no_fact_remembers_goes_only_once_its_epoch_is_remembered(
    world: Any,
) -> None:
    """Its pool was deleted under an earlier release, whose tombstones went after an hour."""
    await world.bus.ensure(log_spec("for.mer", 7))
    await world.ready(await world.start(logs=AT_ONCE))

    async def gone() -> bool:
        return await names(world, "DRAY_DECISIONS_for") == []

    await world.until(gone, "the log is gone")
    assert [
        (one["domain"], one["epoch"], one.get("deleted"))
        for one in (await world.facts())["domain"]
        if one["domain"] != POOL
    ] == [("for.mer", 7, True)]
    await world.pool("for.mer")

    async def opened() -> bool:
        return await world.epoch("for.mer") == 8

    await world.until(opened, "the next epoch is above")


async def test_a_store_that_is_nearly_full_is_reported(world: Any) -> None:
    running = await world.ready(await world.start(logs=AT_ONCE))
    controller = running.controller
    await world.until(lambda: controller.term.publisher.store_use.bytes, "the store was measured")
    assert controller.store_problem() is None
    world.bus.server.storage_bytes = controller.term.publisher.store_use.bytes
    await world.until(controller.store_problem, "the store is nearly full")

    async def is_reported() -> bool:
        state = await world.bus.state(DEAD_STREAM)
        return bool(state.last_sequence)

    await world.until(is_reported, "dray doctor can see it")
