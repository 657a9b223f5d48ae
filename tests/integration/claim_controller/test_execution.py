"""A pod gets its devices: the whole way on in-memory adapters."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from dray.api.names import (
    ALLOCATED,
    CLAIM_FINALIZER,
    DECISION,
    DEDICATED_TAINT,
    DRAY_SCHEDULER,
    HEALTH_TAINT,
)
from dray.kube.convert import claim_from
from dray.kube.ports import BIND_REQUESTS, CLAIMS, EVENTS, NODES, PODS, POOLS, SLICES
from dray.messages.decisions import Waiting
from dray.reasons import Reason
from dray.runtime.clock import ManualClock


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


def status_with(world: Any, reason: str) -> Any:
    """The status of the only BindRequest once it has this reason."""
    for request in world.kube.store.of(BIND_REQUESTS).values():
        found = request.get("status") or {}
        if found.get("reason") == reason:
            return found
    return None


@pytest.mark.parametrize("restarted", [False, True])
async def test_the_bind_request_fails_with_the_node_that_is_lost(
    world: Any, restarted: bool
) -> None:
    running = await world.ready(await world.start())
    await world.pod()
    await world.decide(await world.decision())
    await world.until(lambda: status_with(world, "Bound"), "the BindRequest says Bound")
    if restarted:
        await running.stop()
    await world.kube.delete(NODES, "node-1")
    if restarted:
        await world.ready(await world.start("two"))

    found = await world.until(lambda: status_with(world, "NodeLost"), "the node is lost")

    assert found["phase"] == "Failed"
    assert found["explanation"].startswith("its node node-1 is gone, and its devices with it")


async def test_the_bind_request_says_while_the_node_is_not_ready(world: Any) -> None:
    await world.ready(await world.start())
    await world.pod()
    await world.decide(await world.decision())
    await world.until(lambda: status_with(world, "Bound"), "the BindRequest says Bound")

    async def kubelet_is(status: str, message: str) -> None:
        ready = {"type": "Ready", "status": status, "message": message}
        patch = {"status": {"conditions": [ready]}}
        await world.kube.patch(NODES, "node-1", patch, subresource="status")

    await kubelet_is("Unknown", "Kubelet stopped posting node status.")
    found = await world.until(lambda: status_with(world, "NodeNotReady"), "it says so")
    assert found["phase"] == "Succeeded"
    assert found["explanation"].endswith("is not ready: Kubelet stopped posting node status.")

    await kubelet_is("True", "")
    found = await world.until(lambda: status_with(world, "Bound"), "it says Bound again")
    assert not found.get("explanation")


def events(world: Any, reason: str) -> list[Any]:
    return [one for one in world.kube.store.of(EVENTS).values() if one["reason"] == reason]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_pod_that_dray_binds_gets_the_event_of_kube_scheduler(
    world: Any, restarted: bool
) -> None:
    running = await world.ready(await world.start())
    await world.pod()
    await world.decide(await world.decision())
    await world.until(world.bindings, "the pod is bound")
    if restarted:
        (event,) = await world.until(lambda: events(world, "Scheduled"), "the first event")
        await running.stop()
        await world.kube.delete(EVENTS, event["metadata"]["name"], "default")
        binding = {"status": {"phase": "Binding"}}
        await world.kube.patch(BIND_REQUESTS, "workload", binding, "default", subresource="status")
        await world.ready(await world.start("two"))
    (event,) = await world.until(lambda: events(world, "Scheduled"), "the event")

    assert event["message"] == "Successfully assigned default/workload to node-1"
    assert event["source"]["component"] == DRAY_SCHEDULER
    assert (event["type"], event["action"]) == ("Normal", "Binding")


async def test_a_pod_that_kube_scheduler_binds_gets_no_event_of_dray(shared_world: Any) -> None:
    world = shared_world
    await world.kube.patch(POOLS, "default-pool", {"spec": {"enforcer": "env"}})
    await world.ready(await world.start())
    await world.pod(gated=True)
    await world.decide(await world.decision())
    await world.ungated()
    pod = await world.kube.get(PODS, "workload", "default")
    await world.kube.bind("workload", "default", uid=pod["metadata"]["uid"], node="node-1")
    (event,) = await world.until(lambda: events(world, "GPUAllocated"), "everything is reported")

    assert events(world, "Scheduled") == []
    assert event["message"].endswith("and no program changes them")  # the pool's enforcer


@pytest.mark.parametrize("lasts", [False, True])
async def test_the_wait_for_a_nodes_taint_is_an_event_only_if_it_lasts(
    bare_world: Any, lasts: bool
) -> None:
    world = bare_world()
    await world.base()
    world.make_claims()
    clock = ManualClock()
    try:
        await world.start(clock=clock)
        pod = await world.pod()

        async def while_time_passes(condition: Any) -> Any:
            async def advanced() -> Any:
                await clock.advance(0.2)
                found = condition()
                return await found if isinstance(found, Awaitable) else found

            return await world.until(advanced, "while time passes")

        await while_time_passes(world.claim)
        what = f"node taint {DEDICATED_TAINT}=default-pool:NoSchedule is missing"
        waiting = Waiting(
            domain="default-pool",
            epoch=1,
            writer="test",
            facts_sequence=1,
            now_unix_s=clock.now_unix_s(),
            pod_uid=pod["metadata"]["uid"],
            namespace="default",
            name="workload",
            reasons=(Reason("taint", what, 1, 1, "node"),),
        )
        appended = asyncio.create_task(world.append(waiting))
        await while_time_passes(lambda: world.kube.store.of(BIND_REQUESTS))
        await appended
        assert events(world, "GPUWaiting") == []
        if lasts:
            await while_time_passes(lambda: events(world, "GPUWaiting"))
        else:
            decided = asyncio.create_task(world.decide(await world.decision()))
            await while_time_passes(lambda: events(world, "GPUAllocated"))
            await decided
            assert events(world, "GPUWaiting") == []
    finally:
        await world.close()


async def test_a_pod_gets_an_event_when_the_health_of_its_card_changes(world: Any) -> None:
    await world.ready(await world.start())
    await world.pod()
    await world.decide(await world.decision())
    await world.until(world.bindings, "the pod is bound")
    slice_ = await world.kube.get(SLICES, "slice-node-1")
    healthy = slice_["spec"]["devices"]

    async def publish(devices: list[Any]) -> None:
        await world.kube.patch(SLICES, "slice-node-1", {"spec": {"devices": devices}})

    taint = {"key": HEALTH_TAINT, "value": "xid-79", "effect": "NoSchedule"}
    phase = {"phase": {"string": "Unknown"}}
    unhealthy = [
        {**one, "taints": [taint], "attributes": {**one["attributes"], **phase}} for one in healthy
    ]
    await publish(unhealthy)

    (event,) = await world.until(lambda: events(world, "GPUUnhealthy"), "the warning")
    assert event["type"] == "Warning"
    assert event["message"].startswith("GPU gpu-0 on node node-1 is unhealthy: xid-79.")

    async def status() -> Any:
        return (await world.kube.get(POOLS, "default-pool"))["status"]

    async def counted() -> bool:
        found = await status()
        return bool(found["unhealthy"] == 2 and found["vram"]["free"] == "0")

    await world.until(counted, "the pool counts them")
    await publish(healthy)
    (event,) = await world.until(lambda: events(world, "GPUHealthy"), "healthy again")
    assert event["type"] == "Normal"
    assert (await status())["gpus"] == 2
