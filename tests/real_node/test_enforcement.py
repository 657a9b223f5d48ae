"""A pool whose GPUs are shared by MPS, with a stand-in for NVIDIA's daemon, on a real kubelet."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.real_node.cluster import DEDICATED, GPUS, NODE_OF, REAL_NODE, RealCluster, pod_of

from dray.api.names import DRAY_NAMESPACE, MPS_DAEMON, NAME_LABEL
from dray.kube.ports import PODS, POOLS, SLICES, Object

pytestmark = REAL_NODE
NODE = NODE_OF[DEDICATED]
MPS = {"enforcer": "mps", "mps": {"defaultActiveThreadPercentage": 50}}
NO_MPS = {"enforcer": None, "mps": None}
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: mps, namespace: dray-system}
rules: [{apiGroups: [""], resources: [pods], verbs: [create, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: mps, namespace: dray-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: mps}
subjects: [{kind: User, name: dray-node-agent}]
"""


@pytest_asyncio.fixture(loop_scope="session")
async def mps(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The cluster while one of its pools has the enforcer MPS."""
    await real_cluster.kubectl("apply", "-f", "-", stdin=RIGHTS)
    await real_cluster.kube.patch(POOLS, DEDICATED, {"spec": MPS})

    async def all_answer() -> bool:
        pods = await daemons(real_cluster)
        return len(pods) == GPUS and not await unhealthy(real_cluster)

    await real_cluster.until(all_answer, "an MPS daemon for each GPU")
    yield real_cluster
    await real_cluster.kube.patch(POOLS, DEDICATED, {"spec": NO_MPS})
    await real_cluster.delete(*await real_cluster.pods())

    async def none_left() -> bool:
        return not await daemons(real_cluster) and not await unhealthy(real_cluster)

    await real_cluster.until(none_left, "no MPS daemon")


async def daemons(cluster: RealCluster) -> dict[str, Object]:
    """The pods of MPS daemons by device."""
    listed = await cluster.kube.list(PODS, DRAY_NAMESPACE)
    return {
        one["metadata"]["labels"]["tensor-fusion.ai/mps-device"]: one
        for one in listed.objects
        if (one["metadata"].get("labels") or {}).get(NAME_LABEL) == MPS_DAEMON
    }


async def unhealthy(cluster: RealCluster) -> set[str]:
    """Devices of the node that are not offered."""
    listed = await cluster.kube.list(SLICES, field_selector=f"spec.nodeName={NODE}")
    return {
        device["name"]
        for part in listed.objects
        for device in part["spec"].get("devices", ())
        if any("unhealthy" in taint["key"] for taint in device.get("taints", ()))
    }


@pytest.mark.long
async def test_daemons_and_programs_outlive_the_agent(mps: RealCluster) -> None:
    await mps.create(pod_of("stays", DEDICATED))
    await mps.running("stays")
    before = {name: _container(pod) for name, pod in (await daemons(mps)).items()}
    containers = await mps.containers("stays")
    await mps.restart(f"node-agent-{NODE}")
    await mps.create(pod_of("later", DEDICATED))
    await mps.running("later")
    assert {name: _container(pod) for name, pod in (await daemons(mps)).items()} == before
    assert await mps.containers("stays") == containers


def _container(pod: Object) -> tuple[str, int]:
    (status,) = pod["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]
