"""A pod gets its devices: the whole way on in-memory adapters."""

from typing import Any

import pytest

from dray.api.names import ALLOCATED, CLAIM_FINALIZER, DECISION
from dray.kube.convert import claim_from
from dray.kube.ports import BIND_REQUESTS, CLAIMS, EVENTS, PODS


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
    by = request["status"]["decidedBy"]
    assert (by["policyVersion"], by["learnedVersion"]) == (2, 7)
    assert request["metadata"]["name"] == "workload"
    assert request["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert any("Successfully assigned resources" in message for message in events)

    async def announced() -> bool:
        claim = await world.claim()
        return claim["metadata"]["annotations"].get(ALLOCATED) == "true"

    await world.until(announced, "the claim says allocated")


TERMINATED = {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01Z"}
RAN = {
    "phase": "Succeeded",
    "containerStatuses": [{"name": "a", "state": {"terminated": TERMINATED}}],
}
REJECTED = {"phase": "Failed", "reason": "NodeAffinity", "message": "no match"}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("status", "phase", "reason", "words"),
    [
        (RAN, "Succeeded", "PodSucceeded", "ran on node-1 until 2026-01-01T00:01Z, exit code 0"),
        (REJECTED, "Failed", "NodeAffinity", "was rejected on node-1: NodeAffinity: no match"),
    ],
)
async def test_the_bind_request_says_how_the_pod_ended(
    world: Any, status: Any, phase: str, reason: str, words: str, restarted: bool
) -> None:
    running = await world.ready(await world.start())
    await world.pod()
    await world.decide(await world.decision())
    await world.until(world.bindings, "the pod is bound")
    if restarted:
        await running.stop()
    await world.kube.patch(PODS, "workload", {"status": status}, "default", subresource="status")
    claim = await world.claim()
    await world.kube.patch(
        CLAIMS, claim["metadata"]["name"], {"metadata": {"finalizers": None}}, "default"
    )
    await world.kube.delete(CLAIMS, claim["metadata"]["name"], "default")
    if restarted:
        await world.ready(await world.start("two"))

    def final() -> Any:
        (request,) = world.kube.store.of(BIND_REQUESTS).values()
        found = request.get("status") or {}
        return found if found.get("explanation") else None

    found = await world.until(final, "the BindRequest has the end")
    assert (found["phase"], found["reason"], found["explanation"]) == (phase, reason, words)
