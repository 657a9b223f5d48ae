"""The gated path: kube-scheduler may refuse what dray allocated."""

from typing import Any

from dray.api.names import ALLOCATED
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, PODS
from dray_claim_controller.execution.decisions.unschedulable import Refused

UNSCHEDULABLE = {
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
}


async def allocated(world: Any) -> None:
    """A gated pod, allocated by dray and open to kube-scheduler."""
    await world.pod(gated=True)
    await world.decide(await world.decision())
    await world.ungated()


async def write_pod_status(world: Any, status: dict[str, Any]) -> None:
    """What kube-scheduler says of the pod."""
    await world.kube.patch(PODS, "workload", {"status": status}, "default", subresource="status")


async def clear(world: Any) -> None:
    """What kube-scheduler's PostFilter does to the claim."""
    await write_claim_status(world, {"allocation": None})


async def write_claim_status(world: Any, status: dict[str, Any]) -> None:
    name = (await world.claim())["metadata"]["name"]
    await world.kube.patch(CLAIMS, name, {"status": status}, "default", subresource="status")


async def until_void(world: Any) -> None:
    async def void() -> bool:
        return bool(claim_from(await world.claim()).void == 1_000_001)

    await world.until(void, "the attempt is void")


async def test_an_allocation_that_kube_scheduler_cannot_use_is_rolled_back(
    shared_world: Any,
) -> None:
    world = shared_world
    running = await world.ready(await world.start())
    await allocated(world)
    await write_pod_status(world, UNSCHEDULABLE)

    async def withdrawn() -> bool:
        claim = claim_from(await world.claim())
        return claim.allocation is None and claim.void == claim.decision == 1_000_001

    await world.until(withdrawn, "void, then cleared")
    assert ALLOCATED not in (await world.claim())["metadata"]["annotations"]

    await world.node("node-2", "default-pool")
    await world.decide(await world.decision(node="node-2", attempt=1_000_002))

    async def placed() -> bool:
        allocation = claim_from(await world.claim()).allocation
        return allocation is not None and allocation.node == "node-2"

    await world.until(placed, "decided again elsewhere")

    # The pod still says that it is unschedulable: that was about the first node.
    cache = running.controller.informers.cache
    await world.until(
        lambda: any(seen.claim.allocation for seen in cache.claims.values()), "the watch has it"
    )
    at_once = Refused(after_s=0.0, now_s=1.0, since_s={})
    assert at_once.answer(cache).now
    resting = Refused(after_s=0.0, now_s=1.0, since_s={}, backoff_s=5.0).answer(cache)
    assert resting.now == ()
    later = Refused(after_s=0.0, now_s=6.0, since_s=resting.since_s, backoff_s=5.0)
    assert later.answer(cache).now == at_once.answer(cache).now


async def test_a_reserved_allocation_is_left_alone(shared_world: Any) -> None:
    world = shared_world
    running = await world.ready(await world.start())
    await allocated(world)
    pod = await world.kube.get(PODS, "workload", "default")
    reserved = [{"resource": "pods", "name": "workload", "uid": pod["metadata"]["uid"]}]
    await write_claim_status(world, {"reservedFor": reserved})
    await write_pod_status(world, UNSCHEDULABLE)
    cache = running.controller.informers.cache
    await world.until(
        lambda: any(seen.claim.reserved_for for seen in cache.claims.values()),
        "the reservation is seen",
    )
    recovery = running.controller.term.recovery
    for _ in range(2):
        recovery.scan()
        await world.until(lambda: not recovery.backlog, "what is due was looked at")

    assert claim_from(await world.claim()).allocation is not None


async def test_an_allocation_cleared_by_kube_scheduler_is_not_written_again(
    shared_world: Any,
) -> None:
    """PostFilter clears a claim; a controller that starts then must not resurrect it."""
    world = shared_world
    first = await world.ready(await world.start("first"))
    await allocated(world)
    await first.stop()
    await clear(world)
    await world.ready(await world.start("second"))

    await until_void(world)
    assert claim_from(await world.claim()).allocation is None


async def test_an_allocation_cleared_while_dray_looks_on_is_void_without_being_asked(
    shared_world: Any,
) -> None:
    """Facts may skip from before the commit to after the clearing: nobody else would know."""
    world = shared_world
    running = await world.ready(await world.start())
    await allocated(world)
    await running.controller.term.executor.idle()
    await clear(world)

    await until_void(world)


async def test_a_pod_for_which_kube_scheduler_makes_room_keeps_its_allocation(
    shared_world: Any,
) -> None:
    """It has nominated the node and evicts others, which may take longer than our patience."""
    world = shared_world
    running = await world.ready(await world.start())
    await allocated(world)
    node = claim_from(await world.claim()).allocation.node
    await write_pod_status(world, UNSCHEDULABLE | {"nominatedNodeName": node})
    cache = running.controller.informers.cache
    await world.until(
        lambda: any(
            (seen.object.get("status") or {}).get("nominatedNodeName")
            for seen in cache.pods.values()
        ),
        "the nomination is seen",
    )

    assert Refused(after_s=0.0, now_s=1.0, since_s={}).answer(cache).now == ()
    assert claim_from(await world.claim()).allocation is not None

    await write_pod_status(world, {"nominatedNodeName": None})

    async def withdrawn() -> bool:
        return claim_from(await world.claim()).allocation is None

    await world.until(withdrawn, "taken back once nobody makes room any more")
