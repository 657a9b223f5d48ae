"""Who binds, and what happens where kube-scheduler can't use what dray decided."""

import asyncio

import pytest
from tests.conformance.path_b.cluster import Cluster

from dray.api import names
from dray.kube.ports import CLAIMS, PODS
from tools.faults.plan import DEDICATED, SHARED

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]
SHARED_NODES = {"sim-2", "sim-3", "sim-5"}


async def test_dray_binds_on_dedicated_nodes(cluster: Cluster) -> None:
    await cluster.submit("own", DEDICATED)

    (node,) = await cluster.running("own")

    assert node in ("sim-1", "sim-4")
    pod = await cluster.pod("own")
    assert pod["spec"]["schedulerName"] == names.DRAY_SCHEDULER
    claim_uid = (await cluster.claim("own"))["metadata"]["uid"]
    first = _first(
        cluster, CLAIMS, lambda claim: claim.get("status", {}).get("allocation"), claim_uid
    )
    reserved = [one["uid"] for one in first["status"]["reservedFor"]]
    assert reserved == [pod["metadata"]["uid"]]


@pytest.mark.usefixtures("gated")
async def test_kube_scheduler_binds_on_shared_nodes_after_the_allocation(
    cluster: Cluster,
) -> None:
    await cluster.submit("guest", SHARED)

    (node,) = await cluster.running("guest")

    uid = (await cluster.pod("guest"))["metadata"]["uid"]
    claim_uid = (await cluster.claim("guest"))["metadata"]["uid"]
    created = _first(cluster, PODS, lambda pod: True, uid)
    allocated = _first(
        cluster, CLAIMS, lambda claim: claim.get("status", {}).get("allocation"), claim_uid
    )
    lifted = _first(cluster, PODS, lambda pod: not pod["spec"].get("schedulingGates"), uid)
    bound = _first(cluster, PODS, lambda pod: pod["spec"].get("nodeName"), uid)
    assert created["spec"]["schedulingGates"] == [{"name": names.ALLOCATION_GATE}]
    assert created["spec"]["schedulerName"] == names.DEFAULT_SCHEDULER
    assert not allocated["status"].get("reservedFor")
    order = [int(one["metadata"]["resourceVersion"]) for one in (allocated, lifted, bound)]
    assert order == sorted(order)
    assert len(set(order)) == 3
    assert node in SHARED_NODES
    assert allocated["status"]["allocation"]["devices"]["results"][0]["pool"] == node


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("harm", ["its cpu is taken", "it is cordoned", "it is tainted"])
async def test_a_node_lost_before_the_gate_is_lifted_is_left_for_another(
    cluster: Cluster, harm: str
) -> None:
    """kube-scheduler takes the allocation back: other nodes would do but for the claim."""
    async with cluster.decided("mover", SHARED, cpu="2") as node:
        if harm == "its cpu is taken":
            await cluster.fill("squatter", node, 7)
        elif harm == "it is cordoned":
            await cluster.node(node, unschedulable=True)
        else:
            taint = {"key": "dray.dev/maintenance", "value": "yes", "effect": "NoSchedule"}
            await cluster.node(node, taints=[taint])

    (where,) = await cluster.running("mover")

    assert where in SHARED_NODES - {node}
    claim = await cluster.claim("mover")
    states = cluster.allocations(claim["metadata"]["uid"])
    assert [place for place, _ in states if place] == [node, where]
    # Not void when it was cleared: so it was not dray that did.
    assert ("", 0) in states[states.index((node, 0)) :]


@pytest.mark.usefixtures("gated")
async def test_a_pod_that_kube_scheduler_leaves_unscheduled_is_decided_again(
    cluster: Cluster,
) -> None:
    """No other node is open, so kube-scheduler leaves the allocation; dray takes it back."""
    closed = ("sim-3", "sim-5")
    for node in closed:
        await cluster.node(node, unschedulable=True)
    async with cluster.decided("patient", SHARED, cpu="2") as node:
        await cluster.fill("squatter", node, 7)
    claim_uid = (await cluster.claim("patient"))["metadata"]["uid"]
    await cluster.until("patient", _is_refused, "kube-scheduler refuses it")

    await _withdrawn(cluster, claim_uid)
    await cluster.node("sim-5", unschedulable=None)

    assert node == "sim-2"
    assert await cluster.running("patient") == ["sim-5"]
    places = [place for place, _ in cluster.allocations(claim_uid) if place]
    assert list(dict.fromkeys(places)) == ["sim-2", "sim-5"]


async def test_gated_pods_are_denied_with_the_reason_where_taints_are_dropped_and_only_there(
    cluster: Cluster,
) -> None:
    if await cluster.keeps_taints():
        await cluster.submit("guest", SHARED)
        assert await cluster.running("guest")
        return
    shared = await cluster.denial("guest", SHARED)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    needy = await cluster.denial("guest", DEDICATED, volumes=[volume])

    assert "on shared nodes: name a pool with spec.dedicated: true" in shared
    assert "needs that only kube-scheduler reads (volume data)" in needy


def _is_refused(pod: dict) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions
    )


async def _withdrawn(cluster: Cluster, claim_uid: str) -> None:
    """Wait until it was void while it still held the allocation, and then empty."""
    async with asyncio.timeout(60):
        while True:
            states = cluster.allocations(claim_uid)
            if any(place and void for place, void in states) and not states[-1][0]:
                return
            await asyncio.sleep(0.05)


def _first(cluster: Cluster, resource, condition, uid: str = "") -> dict:
    for change in sorted(cluster.history.changes, key=lambda change: change.version):
        obj = change.object
        if change.resource == resource and obj is not None:
            if uid and obj["metadata"]["uid"] != uid:
                continue
            if condition(obj):
                return obj
    raise AssertionError("never seen")
