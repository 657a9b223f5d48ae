"""Needs on nodes that dray has to itself: those that its node fit doesn't read are
kube-scheduler's, which refuses until dray has found a node that will do."""

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio
from tests.conformance.path_b.another_driver import FOREIGN, another_driver
from tests.conformance.path_b.cluster import HOSTNAME, ON_THE_REAL_ONE, Cluster

from dray.api import names
from dray.kube.ports import PODS, AlreadyExistsError, Object, Resource
from tools.faults.plan import DEDICATED, SHARED

pytestmark = ON_THE_REAL_ONE
OWN = {"sim-1", "sim-4"}
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", False)
VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
RUNTIMES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
APART = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": HOSTNAME}


def _required(kind: str, term: Object) -> Object:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


EXCLUSIVE: dict[str, Object] = {
    "anti-affinity": {"affinity": _required("podAntiAffinity", APART)},
    "topology spread": {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": HOSTNAME,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": APART["labelSelector"],
            }
        ]
    },
}
"""Needs of which a node satisfies one pod at a time, and that kube-scheduler reads."""
SCARCE: dict[str, Object] = {
    "host port": {"container": {"ports": [{"containerPort": 80, "hostPort": 8080}]}},
    "extended resource": {
        "container": {
            "resources": {
                "requests": {"cpu": "100m", "dray.dev/token": "1"},
                "limits": {"dray.dev/token": "1"},
            }
        }
    },
}
"""Needs of which a node satisfies one pod at a time, and that dray reads by itself."""


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("need", EXCLUSIVE)
async def test_two_pods_that_can_not_share_a_node_get_two(cluster: Cluster, need: str) -> None:
    spec = EXCLUSIVE[need]
    for name in ("first", "second"):
        await cluster.submit(name, DEDICATED, labels={"app": "apart"}, **spec)

    nodes = await cluster.running("first", "second")

    assert set(nodes) == OWN
    for name in ("first", "second"):
        await _was_gated(cluster, name)


@pytest.mark.parametrize("need", SCARCE)
async def test_dray_counts_what_a_node_has_for_one_pod_where_it_binds(
    cluster: Cluster, need: str
) -> None:
    for name in ("first", "second"):
        await cluster.submit(name, DEDICATED, **SCARCE[need])

    assert set(await cluster.running("first", "second")) == OWN
    for name in ("first", "second"):
        pod = await cluster.pod(name)
        assert pod["spec"]["schedulerName"] == names.DRAY_SCHEDULER


@pytest.mark.usefixtures("gated")
async def test_dray_respects_anti_affinity_if_it_binds(cluster: Cluster) -> None:
    """It was there first; the pod that comes says nothing, and dray fills the fullest first."""
    await cluster.submit("hermit", DEDICATED, affinity=_required("podAntiAffinity", APART))
    (where,) = await cluster.running("hermit")

    await cluster.submit("quiet", DEDICATED, labels={"app": "else"})
    assert await cluster.running("quiet") == [where]

    await cluster.submit("loud", DEDICATED, labels={"app": "apart"})

    (loud,) = await cluster.running("loud")
    assert loud in OWN - {where}
    pod = await cluster.pod("loud")
    assert pod["spec"]["schedulerName"] == names.DRAY_SCHEDULER


@pytest.mark.usefixtures("gated")
async def test_a_pod_follows_the_one_it_wants_to_be_with(cluster: Cluster) -> None:
    near = {"labelSelector": {"matchLabels": {"app": "anchor"}}, "topologyKey": HOSTNAME}
    await cluster.submit(
        "anchor", DEDICATED, labels={"app": "anchor"}, nodeSelector={HOSTNAME: "sim-1"}
    )
    await _attract(cluster, "sim-4")

    await cluster.submit("follower", DEDICATED, affinity=_required("podAffinity", near))

    assert await cluster.running("anchor", "follower") == ["sim-1", "sim-1"]
    await _was_gated(cluster, "follower")


@pytest.mark.usefixtures("gated")
async def test_a_pod_goes_where_its_volume_is(cluster: Cluster) -> None:
    await _make_volume(cluster, "sim-1")
    await _attract(cluster, "sim-4")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}

    await cluster.submit("reader", DEDICATED, volumes=[volume])

    assert await cluster.running("reader") == ["sim-1"]
    await _was_gated(cluster, "reader")
    await cluster.kube.delete(VOLUME_CLAIMS, "data", "default")
    await cluster.kube.delete(VOLUMES, "data")


async def test_the_overhead_of_a_runtime_counts_where_dray_binds(cluster: Cluster) -> None:
    runtime = {"metadata": {"name": "heavy"}, "handler": "heavy"}
    with suppress(AlreadyExistsError):
        await cluster.kube.create(RUNTIMES, {**runtime, "overhead": {"podFixed": {"cpu": "5"}}})
    for name in ("first", "second"):
        await cluster.submit(name, DEDICATED, runtimeClassName="heavy")

    assert set(await cluster.running("first", "second")) == OWN
    pod = await cluster.pod("first")
    assert pod["spec"]["schedulerName"] == names.DRAY_SCHEDULER
    assert pod["spec"]["overhead"] == {"cpu": "5"}


@pytest.mark.parametrize("pool", [DEDICATED, SHARED])
async def test_dray_waits_for_gates_of_others(cluster: Cluster, pool: str) -> None:
    gate_of_another = [{"name": "dray.dev/quota"}]
    if pool == SHARED and not await cluster.keeps_taints():
        denial = await cluster.denial("later", pool, schedulingGates=gate_of_another)
        assert "on shared nodes: name a pool with spec.dedicated: true" in denial
        return
    await cluster.submit("later", pool, schedulingGates=gate_of_another)
    claim = await cluster.claim("later")
    await cluster.submit("sooner", pool)
    await cluster.running("sooner")
    assert cluster.allocations(claim["metadata"]["uid"]) == [("", 0)]

    gates = (await cluster.pod("later"))["spec"]["schedulingGates"]
    kept = [gate for gate in gates if gate["name"] == names.ALLOCATION_GATE] or None
    await cluster.kube.patch(PODS, "later", {"spec": {"schedulingGates": kept}}, "default")

    await cluster.running("later")


@pytest.mark.usefixtures("gated")
async def test_kube_scheduler_allocates_another_drivers_claim_of_our_pod(
    cluster: Cluster, nic: str
) -> None:
    """It is only where dray would not go first."""
    await _attract(cluster, "sim-4")
    uses = [{"name": "nic", "resourceClaimTemplateName": nic}]
    claims = {"resources": {"requests": {"cpu": "1"}, "claims": [{"name": "nic"}]}}

    await cluster.submit("connected", DEDICATED, resourceClaims=uses, container=claims)

    assert await cluster.running("connected") == ["sim-1"]
    await _was_gated(cluster, "connected")
    theirs = await cluster.claim("connected", "nic")
    (result,) = theirs["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"]) == (FOREIGN, "sim-1")
    ours = await cluster.claim("connected")
    assert ours["status"]["allocation"]["devices"]["results"][0]["driver"] == names.DRIVER
    uid = (await cluster.pod("connected"))["metadata"]["uid"]
    for claim in (ours, theirs):
        assert [one["uid"] for one in claim["status"]["reservedFor"]] == [uid]


async def _attract(cluster: Cluster, node: str) -> None:
    """Make dray prefer a node: it fills the fullest first."""
    pods = [f"magnet-{number}" for number in range(3)]
    for name in pods:
        await cluster.submit(name, DEDICATED, nodeSelector={HOSTNAME: node})
    assert set(await cluster.running(*pods)) == {node}


async def _was_gated(cluster: Cluster, name: str) -> None:
    pod = await cluster.pod(name)
    uid = pod["metadata"]["uid"]
    versions = [change.object for change in cluster.history.changes if change.resource == PODS]
    first = next(obj for obj in versions if obj is not None and obj["metadata"]["uid"] == uid)
    assert {"name": names.ALLOCATION_GATE} in first["spec"]["schedulingGates"]
    assert pod["spec"]["schedulerName"] == names.DEFAULT_SCHEDULER


async def _make_volume(cluster: Cluster, node: str) -> None:
    """A volume on one node, bound to a claim as the volume controller would have bound them."""
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
    common: Object = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    claim = {
        "metadata": {
            "name": "data",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {**common, "volumeName": "data", "resources": {"requests": {"storage": "1Gi"}}},
    }
    made = await cluster.kube.create(VOLUME_CLAIMS, claim, "default")
    reference = {"namespace": "default", "name": "data", "uid": made["metadata"]["uid"]}
    volume = {
        "metadata": {"name": "data"},
        "spec": {
            **common,
            "capacity": {"storage": "1Gi"},
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **reference},
        },
    }
    await cluster.kube.create(VOLUMES, volume)
    bound = {"status": {"phase": "Bound"}}
    await cluster.kube.patch(VOLUME_CLAIMS, "data", bound, "default", subresource="status")
    await cluster.kube.patch(VOLUMES, "data", bound, subresource="status")


@pytest_asyncio.fixture(loop_scope="session")
async def nic(cluster: Cluster) -> AsyncIterator[str]:
    """The name of a template that asks for another driver's card."""
    async with another_driver(cluster) as template:
        yield template
