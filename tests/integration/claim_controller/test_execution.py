"""A pod gets its devices: the whole way on in-memory adapters."""

from typing import Any

from dray.api.names import ALLOCATED, CLAIM_FINALIZER, DECISION
from dray.kube.convert import claim_from
from dray.kube.ports import BIND_REQUESTS, EVENTS, PODS


async def test_a_pod_on_a_dedicated_node_is_allocated_reserved_and_bound(world: Any) -> None:
    await world.ready(await world.start())
    pod = await world.pod()
    await world.decide(await world.decision())

    bound = await world.bound()
    claim = await world.claim()

    assert bound == "node-1"
    assert claim["metadata"]["finalizers"] == [CLAIM_FINALIZER]
    assert claim["metadata"]["annotations"][DECISION] == "1000001"
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["device"] == "gpu-0"
    assert result["consumedCapacity"] == {"virtual_tflops": "100", "virtual_vram": "16Gi"}
    assert len(result["shareID"]) == 36
    assert claim["status"]["allocation"]["allocationTimestamp"]
    assert [entry["uid"] for entry in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]


async def test_a_gated_pod_is_allocated_without_reservation_and_its_gate_lifted(
    shared_world: Any,
) -> None:
    world = shared_world
    await world.ready(await world.start())
    await world.pod(gated=True)
    await world.decide(await world.decision())

    await world.ungated()
    claim = await world.claim()

    assert claim_from(claim).allocation is not None
    assert "reservedFor" not in claim["status"]
    assert not world.kube.store.get(PODS, "workload", "default")["spec"].get("nodeName")


async def test_people_see_what_happened(world: Any) -> None:
    await world.ready(await world.start())
    await world.pod()
    await world.decide(await world.decision())

    async def succeeded() -> Any:
        found = world.kube.store.of(BIND_REQUESTS)
        return [
            request
            for request in found.values()
            if (request.get("status") or {}).get("phase") == "Succeeded"
        ]

    (request,) = await world.until(succeeded, "the BindRequest succeeds")
    events = [event["message"] for event in world.kube.store.of(EVENTS).values()]

    assert request["spec"]["selectedNode"] == "node-1"
    assert request["status"]["decidedBy"] == {"policyVersion": 2, "learnedVersion": 7}
    assert request["metadata"]["name"] == "workload"
    assert request["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert any("Successfully assigned resources" in message for message in events)

    async def announced() -> bool:
        claim = await world.claim()
        return claim["metadata"]["annotations"].get(ALLOCATED) == "true"

    await world.until(announced, "the claim says allocated")
