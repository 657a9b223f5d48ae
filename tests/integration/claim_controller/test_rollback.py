"""While one executor takes a pod's devices back, another, which is behind, would bind it."""

import asyncio
from typing import Any

import pytest

from dray.api.names import VOID
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, PODS, ConflictError, Object
from dray.runtime.clock import SystemClock
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.rollback import Rollback, VoidWriter
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.informers import Informers


async def pod_of(world: Any) -> Object:
    """The pod as the server has it."""
    obj: Object = await world.kube.get(PODS, "workload", "default")
    return obj


def knowing(world: Any, pod: Object, claim: Object) -> Informers:
    """What an executor knows that has seen these, and nothing since."""
    informers = Informers(world.kube.peer(), ObjectCache())
    informers.apply_response(CLAIMS, claim)
    informers.apply_response(PODS, pod)
    return informers


def rollback(world: Any, informers: Informers) -> Rollback:
    """One of a claim-controller that is to hold its Lease for ever."""
    kube = world.kube.peer()
    writes = ExecutionWrites(kube, lambda: None)
    return Rollback(informers, writes, VoidWriter(kube, informers, SystemClock(), writes))


async def test_the_allocation_of_a_bound_pod_is_not_rolled_back_by_an_old_observation(
    world: Any,
) -> None:
    await world.ready(await world.start())
    await world.pod()
    decision = await world.decision()
    unbound = await pod_of(world)
    await world.decide(decision)
    await world.bound()
    late = knowing(world, unbound, await world.claim())

    with pytest.raises(ConflictError):
        await rollback(world, late).roll_back(decision)

    claim = claim_from(await world.claim())
    assert claim.allocation is not None
    assert claim.void == 0


async def test_a_pod_whose_devices_were_rolled_back_is_not_bound_by_a_paused_executor(
    world: Any,
) -> None:
    held, wake = asyncio.Event(), asyncio.Event()

    async def hook(name: str, _: Any) -> None:
        if name == "bind":
            held.set()
            await wake.wait()

    sleeper = await world.ready(await world.start(hook=hook))
    await world.pod()
    decision = await world.decision()
    await world.decide(decision)
    await world.until(held.is_set, "the executor is about to bind")

    other = knowing(world, await pod_of(world), await world.claim())
    await rollback(world, other).roll_back(decision)
    wake.set()
    await sleeper.controller.term.executor.idle()

    pod, claim = await pod_of(world), claim_from(await world.claim())
    (made,) = decision.claims
    assert "nodeName" not in pod["spec"]
    assert pod["metadata"]["annotations"][VOID] == f"{made.uid}.{made.attempt}"
    assert claim.allocation is None
    assert claim.void == made.attempt


async def test_a_pod_is_not_written_to_where_nothing_is_held(world: Any) -> None:
    await world.ready(await world.start())
    await world.pod()
    decision = await world.decision()
    before = await pod_of(world)
    other = knowing(world, before, await world.claim())

    await rollback(world, other).roll_back(decision)

    assert claim_from(await world.claim()).void == decision.claims[0].attempt
    assert await pod_of(world) == before
