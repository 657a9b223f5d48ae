"""A device that two nodes can have attached: it is ready once its driver says so."""

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.conformance.left_out import only_where
from tests.conformance.path_b.cluster import HOSTNAME, NAMESPACE, PATIENCE_S, Cluster

from dray.domain import names
from dray.kube.convert import allocation_from, time_to
from dray.kube.ports import BIND_REQUESTS, CLAIMS, SLICES, Object
from dray_sandbox.faults.plan import DEDICATED

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]
OWN = ("sim-1", "sim-4")
RACK = "rack"
ONLY_THERE = {names.DRA_CEL_EXPRESSION: 'device.attributes["model"] == "FABRIC"'}
CONDITIONS = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}


@pytest_asyncio.fixture(loop_scope="session")
async def fabric(cluster: Cluster) -> AsyncIterator[Cluster]:
    """The cluster, with one such device beside the cards; pods that ask for it get no other."""
    obj = await _slice(cluster)
    made = await cluster.kube.create(SLICES, obj)
    try:
        keeps = "bindingConditions" in made["spec"]["devices"][0]
        only_where(keeps, "its API server drops bindingConditions")
        yield cluster
        await cluster.clean_up()
    finally:
        await cluster.kube.delete(SLICES, RACK)


async def _slice(cluster: Cluster) -> Object:
    slices = (await cluster.kube.list(SLICES)).objects
    known = next(one for one in slices if one["spec"].get("nodeName") == OWN[0])
    device = copy.deepcopy(known["spec"]["devices"][0])
    device["name"] = "fabric-0"
    of_its_own = {"model": "FABRIC", "uuid": "fabric-0", "pool_name": DEDICATED}
    device["attributes"] |= {name: {"string": value} for name, value in of_its_own.items()}
    wanted = {"key": HOSTNAME, "operator": "In", "values": list(OWN)}
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


async def _tell(cluster: Cluster, pod: str, condition: str) -> None:
    """What the device's driver says of it."""
    claim = await cluster.claim(pod)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert {name: result[name] for name in CONDITIONS} == CONDITIONS
    told: dict[str, Any] = {
        name: result[name] for name in ("driver", "pool", "device", "shareID") if name in result
    }
    said = {"type": condition, "status": "True", "reason": "Fabric", "message": "so it is"}
    told["conditions"] = [said | {"lastTransitionTime": time_to(0)}]
    patch = {"status": {"devices": [told]}}
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
