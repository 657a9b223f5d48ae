"""The scheduler stand-in binds a pod once its devices are ready, and gives up those that fail."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dray.kube.convert import time_to
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, EVENTS, NODES, PODS, Resource
from dray_sandbox.scheduler.scheduler import Scheduler

Object = dict[str, Any]
NODE: Object = {
    "metadata": {"name": "a"},
    "spec": {},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
}
POD: Object = {
    "metadata": {"name": "mine", "namespace": "team"},
    "spec": {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "port"}],
    },
    "status": {"phase": "Pending"},
}
DEVICE: Object = {"driver": "d", "pool": "rack", "device": "port-0"}
CONDITIONS = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
Running = Callable[..., Any]


@pytest.fixture
async def waiting() -> AsyncIterator[Running]:
    """Makes a cluster with a pod whose claim is allocated, and a scheduler that looks often."""
    running: list[asyncio.Task[None]] = []

    async def begin(allocated_unix_s: float, **settings: float) -> MemoryKube:
        kube = MemoryKube()
        await kube.create(NODES, NODE)
        request = {"name": "r", "exactly": {"deviceClassName": "c"}}
        spec = {"devices": {"requests": [request]}}
        await kube.create(
            CLAIMS, {"metadata": {"name": "port", "namespace": "team"}, "spec": spec}, "team"
        )
        allocation = {
            "devices": {"results": [{"request": "r"} | DEVICE | CONDITIONS]},
            "allocationTimestamp": time_to(allocated_unix_s),
        }
        await status(kube, {"allocation": allocation})
        scheduler = Scheduler(kube.peer(), poll_interval_s=0.01, **settings)
        running.append(asyncio.create_task(scheduler.run()))
        await kube.create(PODS, POD, "team")
        return kube

    yield begin
    for task in running:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def status(kube: MemoryKube, fields: Object) -> None:
    await kube.patch(CLAIMS, "port", {"status": fields}, "team", subresource="status")


async def tell(kube: MemoryKube, condition: str) -> None:
    stated = {"type": condition, "status": "True", "reason": "Fabric", "message": "so it is"}
    await status(kube, {"devices": [DEVICE | {"conditions": [stated]}]})


async def eventually(
    kube: MemoryKube, resource: Resource, holds: Callable[[Object], object]
) -> Object:
    """The first object of a kind for which it holds, once there is one."""
    async with asyncio.timeout(60):
        while True:
            for one in (await kube.list(resource)).objects:
                if holds(one):
                    return one
            await asyncio.sleep(0.01)


async def pending(kube: MemoryKube) -> Object:
    return await eventually(kube, EVENTS, lambda one: one["reason"] == "BindingConditionsPending")


async def test_a_pod_is_bound_when_its_device_is_attached(waiting: Running) -> None:
    kube = await waiting(time.time())
    event = await pending(kube)
    assert event["message"] == "waiting for binding conditions for device on node a"
    claim = await eventually(kube, CLAIMS, lambda one: one["status"].get("reservedFor"))
    pod = await kube.get(PODS, "mine", "team")
    assert claim["status"]["reservedFor"][0]["uid"] == pod["metadata"]["uid"]
    assert "nodeName" not in pod["spec"]
    await tell(kube, "attached")
    bound = await eventually(kube, PODS, lambda one: one["spec"].get("nodeName"))
    assert bound["spec"]["nodeName"] == "a"


async def test_a_device_that_fails_is_taken_back_and_the_pod_has_an_event(waiting: Running) -> None:
    kube = await waiting(time.time())
    await pending(kube)
    await tell(kube, "broken")
    failed = await eventually(kube, EVENTS, lambda one: "device binding failed" in one["message"])
    assert failed["reason"] == "FailedScheduling"
    assert 'claim=port, reason=Fabric, message="so it is"' in failed["message"]
    await eventually(kube, CLAIMS, lambda one: not one.get("status"))
    assert "nodeName" not in (await kube.get(PODS, "mine", "team"))["spec"]


@pytest.mark.parametrize("age_s", [0.0, 3600.0])
async def test_a_device_that_takes_too_long_is_taken_back(waiting: Running, age_s: float) -> None:
    kube = await waiting(time.time() - age_s, binding_timeout_s=2.0)
    await eventually(kube, CLAIMS, lambda one: not one.get("status"))
    assert "nodeName" not in (await kube.get(PODS, "mine", "team"))["spec"]
