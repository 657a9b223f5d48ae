"""Scheduler and controllers on an in-memory API: what ends up in it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, EVENTS, NODES, PODS, TEMPLATES, NotFoundError, Resource
from dray_sandbox.controllers.claim_controller import ResourceClaimController
from dray_sandbox.scheduler.scheduler import Scheduler

Object = dict[str, Any]
NODE: Object = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "a"},
    "spec": {},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
}
TEMPLATE: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "tpl", "namespace": "team"},
    "spec": {
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
    },
}


def pod(name: str = "mine") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "tpl"}],
        },
        "status": {"phase": "Pending"},
    }


@pytest.fixture
async def kube() -> AsyncIterator[MemoryKube]:
    kube = MemoryKube()
    running = [
        asyncio.create_task(Scheduler(kube.peer()).run()),
        asyncio.create_task(ResourceClaimController(kube.peer()).run()),
    ]
    await kube.create(NODES, NODE)
    yield kube
    for task in running:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def eventually(
    kube: MemoryKube, resource: Resource, holds: Callable[[list[Object]], bool]
) -> list[Object]:
    """The objects of a kind, once the condition holds for them."""
    objects: list[Object] = []
    try:
        async with asyncio.timeout(30):
            while True:
                objects = list((await kube.list(resource)).objects)
                if holds(objects):
                    return objects
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"did not come true for {objects}")


async def allocate(kube: MemoryKube, claim: Object, *, stamped: bool = True) -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
    allocation: Object = {
        "devices": {"results": []},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
    }
    if stamped:
        allocation["allocationTimestamp"] = "2026-01-01T00:00:00Z"
    metadata = claim["metadata"]
    finalized = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
    await kube.patch(CLAIMS, metadata["name"], finalized, "team")
    patch = {"status": {"allocation": allocation}}
    await kube.patch(CLAIMS, metadata["name"], patch, "team", subresource="status")


async def test_a_late_template_becomes_a_claim_and_its_allocation_a_binding(
    kube: MemoryKube,
) -> None:
    await kube.create(PODS, pod(), "team")
    await eventually(
        kube, EVENTS, lambda found: any(e["reason"] == "FailedResourceClaimCreation" for e in found)
    )
    await eventually(kube, EVENTS, lambda found: found[0]["count"] > 2)
    await kube.create(TEMPLATES, TEMPLATE, "team")
    (claim,) = await eventually(kube, CLAIMS, lambda found: len(found) == 1)
    await eventually(
        kube,
        PODS,
        lambda found: any(
            condition["reason"] == "Unschedulable"
            for condition in found[0]["status"].get("conditions", [])
        ),
    )
    await allocate(kube, claim)
    (bound,) = await eventually(kube, PODS, lambda found: bool(found[0]["spec"].get("nodeName")))
    (reserved,) = (await kube.list(CLAIMS)).objects
    assert reserved["status"]["reservedFor"][0]["uid"] == bound["metadata"]["uid"]


async def test_the_end_of_a_pod_releases_and_removes_its_claim(kube: MemoryKube) -> None:
    await kube.create(TEMPLATES, TEMPLATE, "team")
    await kube.create(PODS, pod(), "team")
    (claim,) = await eventually(kube, CLAIMS, lambda found: len(found) == 1)
    await allocate(kube, claim)
    await eventually(kube, PODS, lambda found: bool(found[0]["spec"].get("nodeName")))
    await kube.patch(PODS, "mine", {"status": {"phase": "Succeeded"}}, "team", subresource="status")
    await eventually(kube, CLAIMS, lambda found: found == [])


async def test_a_pod_whose_allocation_has_no_timestamp_stays_pending(kube: MemoryKube) -> None:
    await kube.create(TEMPLATES, TEMPLATE, "team")
    await kube.create(PODS, pod(), "team")
    (claim,) = await eventually(kube, CLAIMS, lambda found: len(found) == 1)
    await allocate(kube, claim, stamped=False)
    (found,) = await eventually(
        kube,
        PODS,
        lambda found: any(
            condition["reason"] == "SchedulerError"
            for condition in found[0]["status"].get("conditions", [])
        ),
    )
    assert not found["spec"].get("nodeName")


async def test_one_claim_is_made_per_reference_however_often_the_pod_changes(
    kube: MemoryKube,
) -> None:
    await kube.create(TEMPLATES, TEMPLATE, "team")
    await kube.create(PODS, pod(), "team")
    for number in range(5):
        patch = {"metadata": {"annotations": {"touched": str(number)}}}
        await kube.patch(PODS, "mine", patch, "team")
    await eventually(
        kube, PODS, lambda found: bool(found[0]["status"].get("resourceClaimStatuses"))
    )
    kube.expire_watches()
    await eventually(
        kube, EVENTS, lambda found: any(e["reason"] == "FailedScheduling" for e in found)
    )
    assert len((await kube.list(CLAIMS)).objects) == 1


async def test_a_claim_of_a_deleted_pod_goes_with_it(kube: MemoryKube) -> None:
    await kube.create(TEMPLATES, TEMPLATE, "team")
    await kube.create(PODS, pod(), "team")
    (claim,) = await eventually(kube, CLAIMS, lambda found: len(found) == 1)
    await allocate(kube, claim)
    await eventually(kube, PODS, lambda found: bool(found[0]["spec"].get("nodeName")))
    await kube.delete(PODS, "mine", "team", grace_period_s=0)
    with pytest.raises(NotFoundError):
        await kube.get(PODS, "mine", "team")
    await eventually(
        kube, CLAIMS, lambda found: all("allocation" not in one.get("status", {}) for one in found)
    )
    kube.collect_garbage()
    await eventually(kube, CLAIMS, lambda found: found == [])
