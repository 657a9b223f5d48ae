"""Devices that are not ready at once: dray binds when they are, or takes them back."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dray.api.claims import DeviceTerms
from dray.api.names import VOID
from dray.kube.convert import claim_from
from dray.kube.ports import BIND_REQUESTS, CLAIMS, EVENTS, LEASES, NODES, PODS
from dray_claim_controller.settings import ExecutionSettings

TERMS = DeviceTerms(
    binding_conditions=("attached", "configured"), binding_failure_conditions=("broken",)
)


async def decided(world: Any, pod: str = "workload", **where: Any) -> Any:
    """A pod of dray's, and a decision for it by a device that has conditions."""
    await world.pod(pod)
    decision = await world.decision(pod, **where)
    (claim,) = decision.claims
    devices = tuple(replace(device, terms=TERMS) for device in claim.allocation.devices)
    allocation = replace(claim.allocation, devices=devices)
    claim = msgspec.structs.replace(claim, allocation=allocation)
    decision = msgspec.structs.replace(decision, claims=(claim,))
    await world.decide(decision)
    return decision


async def awaited(world: Any, lacking: str = "attached, configured") -> None:
    """Wait until everybody can see which conditions the pod waits for."""

    def is_reported() -> bool:
        requests = world.kube.store.of(BIND_REQUESTS).values()
        statuses = [request.get("status") or {} for request in requests]
        return any(
            status.get("reason") == "BindingConditionsPending"
            and status["explanation"].endswith(f"gpu-0 lacks the condition {lacking}")
            for status in statuses
        )

    await world.until(is_reported, f"a reason names {lacking}")


async def warn(world: Any, pod: str = "workload", **conditions: str) -> None:
    """What the driver says of the device that the pod's claim has."""
    claim = await world.claim(pod)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    reported = {name: result[name] for name in ("driver", "pool", "device", "shareID")}
    reported["conditions"] = [
        {"type": name, "status": status, "reason": "Driver", "message": "says so"}
        for name, status in conditions.items()
    ]
    name, status = claim["metadata"]["name"], {"devices": [reported]}
    await world.kube.patch(CLAIMS, name, {"status": status}, "default", subresource="status")


def events(world: Any, reason: str) -> list[str]:
    found = world.kube.store.of(EVENTS).values()
    return [event["message"] for event in found if event["reason"] == reason]


async def test_a_pod_is_bound_when_its_device_has_all_conditions(world: Any) -> None:
    running = await world.ready(await world.start())
    await decided(world)
    await awaited(world)
    result = (await world.claim())["status"]["allocation"]["devices"]["results"][0]
    assert result["bindingConditions"] == ["attached", "configured"]
    assert result["bindingFailureConditions"] == ["broken"]

    await warn(world, attached="True", configured="False")
    await awaited(world, "configured")
    assert world.bindings() == []
    (message,) = events(world, "BindingConditionsPending")
    assert message.startswith("waiting for binding conditions for device on node node-1: ")

    await warn(world, attached="True", configured="True")
    assert await world.bound() == "node-1"
    await running.controller.term.executor.idle()
    assert len(world.allocations()) == 1
    assert not running.controller.term.executor.resting


async def test_waiting_pods_delay_no_other_pod(world: Any) -> None:
    one_at_a_time = ExecutionSettings(concurrency=1, finish_after=0.1, withdraw_every=0.02)
    await world.ready(await world.start(execution=one_at_a_time))
    await decided(world)
    await awaited(world)

    await world.pod("other")
    await world.decide(await world.decision("other", device="gpu-1"))

    await world.bound("other")
    assert "nodeName" not in world.kube.store.get(PODS, "workload", "default")["spec"]


async def rolled_back(world: Any) -> None:
    """Wait until the first attempt is void and cleared; the pod recorded it before."""

    async def cleared() -> bool:
        claim = claim_from(await world.claim())
        return claim.allocation is None and claim.void == claim.decision == 1_000_001

    await world.until(cleared, "void and cleared")
    execution = []
    for event in world.kube.store.events:
        before, after = event.before or {}, event.after or {}
        if event.resource == PODS and _void(after) != _void(before):
            execution.append("reported")
        elif event.resource == CLAIMS and _void(after) != _void(before):
            execution.append("void")
        elif event.resource == CLAIMS and _held(before) and not _held(after):
            execution.append("cleared")
    assert execution == ["reported", "void", "cleared"]


def _void(obj: Any) -> Any:
    return ((obj.get("metadata") or {}).get("annotations") or {}).get(VOID)


def _held(obj: Any) -> Any:
    return (obj.get("status") or {}).get("allocation")


async def test_a_device_that_fails_is_rolled_back_and_another_one_decided(world: Any) -> None:
    await world.ready(await world.start())
    await decided(world)
    await awaited(world)
    await warn(world, attached="True", broken="True")

    await rolled_back(world)
    await world.until(lambda: events(world, "BindingConditionsFailed"), "the event")
    (message,) = events(world, "BindingConditionsFailed")
    assert "gpu-0 has the condition broken (Driver: says so)" in message
    assert "devices" not in ((await world.claim()).get("status") or {})

    await world.node("node-2", "default-pool")
    again = await world.decision(node="node-2", attempt=1_000_002)
    await world.decide(again)
    assert await world.bound() == "node-2"
    assert world.bindings() == ["node-2"]


async def test_a_device_that_is_not_ready_in_time_is_rolled_back(world: Any) -> None:
    impatient = ExecutionSettings(binding_timeout=0.01, finish_after=0.1, withdraw_every=0.02)
    await world.ready(await world.start(execution=impatient))
    await decided(world)

    await rolled_back(world)
    await world.until(lambda: events(world, "BindingConditionsFailed"), "the event")
    assert "after 0.01 s still device" in events(world, "BindingConditionsFailed")[0]
    assert world.bindings() == []


@pytest.mark.parametrize("finding", ["ready", "broken"])
async def test_the_next_leader_continues_to_wait(world: Any, finding: str) -> None:
    first = await world.ready(await world.start("first"))
    await decided(world)
    await awaited(world)
    for task in first.tasks:
        task.cancel()
    await asyncio.gather(*first.tasks, return_exceptions=True)
    if finding == "broken":
        await warn(world, broken="True")
    await world.kube.delete(LEASES, "dray-claim-controller", "dray-system")
    second = await world.ready(await world.start("second"))

    if finding == "broken":
        await rolled_back(world)
        return
    executor = second.controller.term.executor
    await world.until(lambda: executor.resting, "it rests again")
    await warn(world, attached="True", configured="True")
    await world.bound()
    await executor.idle()
    assert len(world.allocations()) == 1
    assert claim_from(await world.claim()).void == 0


async def test_a_deleted_pod_is_waited_for_no_more(world: Any) -> None:
    running = await world.ready(await world.start())
    await decided(world)
    await awaited(world)

    await world.kube.delete(PODS, "workload", "default")

    await running.controller.term.executor.idle()
    assert world.bindings() == []


async def test_a_node_that_goes_is_waited_for_no_more(world: Any) -> None:
    await world.ready(await world.start())
    await decided(world)
    await awaited(world)

    await world.kube.delete(NODES, "node-1")

    await rolled_back(world)
    assert world.bindings() == []
    await world.until(lambda: events(world, "BindingConditionsFailed"), "the event")
