"""A device that either of two nodes can attach: it is ready once its driver says so. The binder
waits for it: dray on dedicated nodes, kube-scheduler on shared ones."""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from tests.conformance.left_out import only_where
from tests.conformance.path_b.cluster import HOSTNAME, NAMESPACE, PATIENCE_S, Cluster

from dray.api import names
from dray.kube.convert import allocation_from, time_to
from dray.kube.ports import BIND_REQUESTS, CLAIMS, EVENTS, SLICES, Object
from tools.faults.plan import DEDICATED, SHARED

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]
OWN = {DEDICATED: ("sim-1", "sim-4"), SHARED: ("sim-2", "sim-3")}
RACK = "rack"
ONLY_THERE = {names.DRA_CEL_EXPRESSION: 'device.attributes["model"] == "FABRIC"'}
CONDITIONS = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}


@pytest_asyncio.fixture(loop_scope="session")
async def fabric(cluster: Cluster) -> AsyncIterator[Cluster]:
    """The cluster, with one such device in addition to the cards of the dedicated nodes; pods that
    ask for it get no other."""
    async with _published(cluster, DEDICATED):
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def shared_fabric(cluster: Cluster, gated: None) -> AsyncIterator[Cluster]:
    """The same, of shared nodes."""
    async with _published(cluster, SHARED):
        yield cluster


@asynccontextmanager
async def _published(cluster: Cluster, pool: str) -> AsyncIterator[None]:
    obj = await _slice(cluster, pool)
    made = await cluster.kube.create(SLICES, obj)
    try:
        keeps = "bindingConditions" in made["spec"]["devices"][0]
        only_where(keeps, "its API server drops bindingConditions")
        yield
        await cluster.clean_up()
    finally:
        await cluster.kube.delete(SLICES, RACK)


async def _slice(cluster: Cluster, pool: str) -> Object:
    slices = (await cluster.kube.list(SLICES)).objects
    known = next(one for one in slices if one["spec"].get("nodeName") == OWN[pool][0])
    device = copy.deepcopy(known["spec"]["devices"][0])
    device["name"] = "fabric-0"
    of_its_own = {"model": "FABRIC", "uuid": "fabric-0", "pool_name": pool}
    device["attributes"] |= {name: {"string": value} for name, value in of_its_own.items()}
    wanted = {"key": HOSTNAME, "operator": "In", "values": list(OWN[pool])}
    return {
        "metadata": {"name": RACK},
        "spec": {
            "driver": names.DRIVER,
            "pool": {"name": RACK, "generation": 1, "resourceSliceCount": 1},
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]},
            "devices": [device | CONDITIONS | {"bindsToNode": True}],
        },
    }


async def _awaited(cluster: Cluster, pod: str, *, but: str = "") -> str:
    """The node, any ``but`` this one, to which the pod's device has to be attached, once people
    can see that."""
    async with asyncio.timeout(PATIENCE_S):
        async for _ in cluster.kube.watch(
            BIND_REQUESTS, NAMESPACE, field_selector=f"metadata.name={pod}"
        ):
            for found in (await cluster.kube.list(BIND_REQUESTS, NAMESPACE)).objects:
                status, node = found.get("status") or {}, found["spec"]["selectedNode"]
                if status.get("reason") == "BindingConditionsPending" and node != but:
                    assert found["metadata"]["name"] == pod
                    assert "rack/fabric-0 lacks the condition attached" in status["explanation"]
                    return str(node)
    raise AssertionError("a watch has no end")


async def _reserved(cluster: Cluster, pod: str, *, but: str = "") -> str:
    """The node, any ``but`` this one, for which kube-scheduler has reserved the pod's claim."""
    name = (await cluster.claim(pod))["metadata"]["name"]
    async with asyncio.timeout(PATIENCE_S):
        async for _ in cluster.kube.watch(
            CLAIMS, NAMESPACE, field_selector=f"metadata.name={name}"
        ):
            status = (await cluster.kube.get(CLAIMS, name, NAMESPACE)).get("status") or {}
            if status.get("reservedFor") and status.get("allocation"):
                node = allocation_from(status["allocation"]).node
                if node != but:
                    return node
    raise AssertionError("a watch has no end")


async def _reported(cluster: Cluster, pod: str, reason: str, *words: str) -> None:
    """Wait for an event of the pod that says so."""
    async with asyncio.timeout(PATIENCE_S):
        async for _ in cluster.kube.watch(EVENTS, NAMESPACE):
            for event in (await cluster.kube.list(EVENTS, NAMESPACE)).objects:
                about = event["involvedObject"].get("name"), event["reason"]
                if about == (pod, reason) and all(word in event["message"] for word in words):
                    return


async def _allocated(cluster: Cluster, pod: str) -> Object:
    """The pod's claim, once it has its device: a BindRequest may name the next node before, with
    the reason for the last."""
    name = (await cluster.claim(pod))["metadata"]["name"]
    async with asyncio.timeout(PATIENCE_S):
        async for _ in cluster.kube.watch(
            CLAIMS, NAMESPACE, field_selector=f"metadata.name={name}"
        ):
            claim = await cluster.kube.get(CLAIMS, name, NAMESPACE)
            if (claim.get("status") or {}).get("allocation"):
                return claim
    raise AssertionError("a watch has no end")


async def _tell(cluster: Cluster, pod: str, condition: str) -> None:
    """What the device's driver says of it."""
    claim = await _allocated(cluster, pod)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert {name: result[name] for name in CONDITIONS} == CONDITIONS
    reported: dict[str, Any] = {
        name: result[name] for name in ("driver", "pool", "device", "shareID") if name in result
    }
    stated = {"type": condition, "status": "True", "reason": "Fabric", "message": "so it is"}
    reported["conditions"] = [stated | {"lastTransitionTime": time_to(0)}]
    patch = {"status": {"devices": [reported]}}
    await cluster.kube.patch(
        CLAIMS, claim["metadata"]["name"], patch, NAMESPACE, subresource="status"
    )


async def _bound(cluster: Cluster, pod: str) -> str:
    found = await cluster.until(pod, lambda obj: obj["spec"].get("nodeName"), "it is bound")
    return str(found["spec"]["nodeName"])


async def test_a_pod_is_bound_when_its_device_is_attached(fabric: Cluster) -> None:
    await fabric.submit("patient", DEDICATED, annotations=ONLY_THERE)
    node = await _awaited(fabric, "patient")

    await fabric.submit("quick", DEDICATED)
    await fabric.running("quick")
    assert "nodeName" not in (await fabric.pod("patient"))["spec"]
    await _tell(fabric, "patient", "attached")

    assert await _bound(fabric, "patient") == node
    allocation = (await fabric.claim("patient"))["status"]["allocation"]
    assert allocation["allocationTimestamp"]
    assert allocation_from(allocation).node == node, "bindsToNode: it is for no other node"


async def test_a_device_that_can_not_be_attached_is_tried_on_another_node(fabric: Cluster) -> None:
    await fabric.submit("patient", DEDICATED, annotations=ONLY_THERE)
    first = await _awaited(fabric, "patient")
    claim_uid = (await fabric.claim("patient"))["metadata"]["uid"]

    await _tell(fabric, "patient", "broken")
    second = await _awaited(fabric, "patient", but=first)
    await _tell(fabric, "patient", "attached")

    assert await _bound(fabric, "patient") == second
    states = fabric.allocations(claim_uid)
    held = [(place, bool(void)) for place, void in states]
    assert held[-4:] == [(RACK, False), (RACK, True), ("", True), (RACK, True)], states


async def test_kube_scheduler_waits_for_the_devices_of_the_pods_that_it_binds(
    shared_fabric: Cluster,
) -> None:
    await shared_fabric.submit("awaited", SHARED, annotations=ONLY_THERE)
    node = await _reserved(shared_fabric, "awaited")
    waits = f"waiting for binding conditions for device on node {node}"
    await _reported(shared_fabric, "awaited", "BindingConditionsPending", waits)
    assert "nodeName" not in (await shared_fabric.pod("awaited"))["spec"]
    await _tell(shared_fabric, "awaited", "attached")

    assert await _bound(shared_fabric, "awaited") == node


async def test_what_kube_scheduler_gives_up_is_tried_on_another_node(
    shared_fabric: Cluster,
) -> None:
    await shared_fabric.submit("given-up", SHARED, annotations=ONLY_THERE)
    first = await _reserved(shared_fabric, "given-up")
    await _tell(shared_fabric, "given-up", "broken")
    failure = ("device binding failed: claim=", 'reason=Fabric, message="so it is"')
    await _reported(shared_fabric, "given-up", "FailedScheduling", *failure)

    second = await _reserved(shared_fabric, "given-up", but=first)
    await _tell(shared_fabric, "given-up", "attached")
    assert await _bound(shared_fabric, "given-up") == second
