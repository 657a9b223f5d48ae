"""Records of a newer release, which this claim-controller can't decode: they stop nobody."""

import asyncio
from contextlib import aclosing
from typing import Any

from dray.api.claims import first_attempt
from dray.bus.topology import DEAD_STREAM
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, LEASES
from dray.messages.base import Outgoing, encode
from dray.messages.commands import VoidClaim
from dray.messages.decisions import log_stream, log_subject

POOL = "default-pool"


async def append(world: Any, payload: bytes) -> None:
    state = await world.bus.state(log_stream(POOL, 1))
    message = Outgoing(log_subject(POOL, 1), payload)
    await world.bus.append(message, expected_last=state.last_sequence)


async def reasons(world: Any) -> list[str]:
    """What the doctor gets."""
    state = await world.bus.state(DEAD_STREAM)
    found: list[str] = []
    if not state.last_sequence:
        return found
    async with aclosing(world.bus.read(DEAD_STREAM)) as letters:
        async for delivered in letters:
            found.append(delivered.headers["dray-dead-reason"])
            if not delivered.pending:
                break
    return found


async def test_decisions_around_a_record_that_is_passed_over_are_carried_out(world: Any) -> None:
    running = await world.ready(await world.start())
    await world.pod()
    await append(world, b'{"record":"preempted"}')
    await world.decide(await world.decision())
    assert await world.bound() == "node-1"
    assert running.controller.term.followers.undecodable == 1
    (reason,) = await reasons(world)
    assert reason.startswith("claim-controller skips record 2 of DRAY_DECISIONS_default-pool")
    assert "another version of dray" in reason


async def test_the_next_leader_executes_all_decisions_of_a_log(
    world: Any,
) -> None:
    """The last record of those that it reads first is one that it passes over."""
    first = await world.ready(await world.start("first"))
    await world.pod()
    decision = await world.decision()
    for task in first.tasks:
        task.cancel()
    await asyncio.gather(*first.tasks, return_exceptions=True)
    await world.decide(decision)
    await append(world, b'{"record":"preempted"}')
    await world.kube.delete(LEASES, "dray-claim-controller", "dray-system")
    await world.ready(await world.start("second"))
    assert await world.bound() == "node-1"


async def test_a_decision_that_is_passed_over_is_voided_and_its_pod_decided_again(
    world: Any,
) -> None:
    """As the allocator asks when it was not committed in time."""
    await world.ready(await world.start())
    await world.pod()
    decision = await world.decision()
    claim = decision.claims[0]
    await append(world, b'{"record":"decided","pods":[{"binder":"a-third-one"}]}')
    command = VoidClaim(
        domain=POOL,
        claim_uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        attempt=claim.attempt,
        reason="not committed after 30 s",
    )
    await world.bus.publish(encode(command, source="/test"))

    async def void() -> bool:
        return bool(claim_from(await world.claim()).void == first_attempt(1))

    await world.until(void, "the attempt is void")
    await world.decide(await world.decision(attempt=first_attempt(1) + 1))
    assert await world.bound() == "node-1"
    assert len(world.allocations()) == 1


async def test_an_order_that_a_passed_over_record_ended_stops_at_the_void(world: Any) -> None:
    """A release of another form: the devices may belong to another pod now."""
    first = await world.ready(await world.start("first"))
    await world.pod()
    decision = await world.decision()
    claim = decision.claims[0]
    for task in first.tasks:
        task.cancel()
    await asyncio.gather(*first.tasks, return_exceptions=True)
    await world.decide(decision)
    annotations = {"tensor-fusion.ai/void": str(claim.attempt)}
    name, namespace = claim.name, claim.namespace
    patch = {"metadata": {"annotations": annotations}}

    await world.kube.patch(CLAIMS, name, patch, namespace)
    await append(world, b'{"record":"released","releases":[{"why":"preempted"}]}')
    await world.kube.delete(LEASES, "dray-claim-controller", "dray-system")
    second = await world.ready(await world.start("second"))
    await second.controller.term.executor.idle()
    assert world.allocations() == []
    assert world.bindings() == []
