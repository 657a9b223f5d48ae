"""A pool whose GPUs are shared by MPS, with a stand-in for NVIDIA's daemon, on a real kubelet."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.conformance.stand import NAMESPACE
from tests.real_node.cluster import (
    DEDICATED,
    GPUS,
    NODE_OF,
    REAL_NODE,
    RealCluster,
    is_ready,
    pod_of,
)

from dray.api.names import DRAY_NAMESPACE, MPS_DAEMON, NAME_LABEL
from dray.kube.ports import EVENTS, PODS, POOLS, SLICES, Object

pytestmark = REAL_NODE
NODE = NODE_OF[DEDICATED]
THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
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
        ready = [pod for pod in pods.values() if is_ready(pod)]
        return len(ready) == GPUS and not await unhealthy(real_cluster)

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


async def test_programs_of_one_gpu_share_its_daemon_and_a_tenant_undoes_its_own_limit_alone(
    mps: RealCluster,
) -> None:
    limits = {"compute-percent-limit": "40", "vram-limit": "16Gi"}
    for name in ("first", "second"):
        await mps.create(pod_of(name, DEDICATED, limits))
    await mps.running("first", "second")
    environment = await mps.environment("first")
    assert environment["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"
    assert environment[THREADS] == "40"
    assert environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=16384M"
    # Packed on one GPU, both see the memory and the pipes of one daemon.
    await mps.shell("first", "echo shared > /dev/shm/dray-test")
    assert await mps.shell("second", "cat /dev/shm/dray-test") == "shared"
    mounts = await mps.shell("second", "grep ' /dev/shm ' /proc/mounts")
    assert "tmpfs" in mounts
    assert "size=65536k" in mounts
    pid = await mps.shell("second", "cat /tmp/nvidia-mps/nvidia-cuda-mps-control.pid")
    assert pid.isdigit()
    # What the tenant can undo, and what the daemon still says then.
    assert await mps.shell("first", f"{THREADS}=100 env | grep {THREADS}") == f"{THREADS}=100"
    names = [pod["metadata"]["name"] for pod in (await daemons(mps)).values()]
    ask = "echo get_default_active_thread_percentage | nvidia-cuda-mps-control"
    for name in names:
        printed = await mps.kubectl("-n", DRAY_NAMESPACE, "exec", name, "--", "sh", "-c", ask)
        assert printed.strip() == "50.0"
    messages = [
        event["message"]
        for event in (await mps.kube.list(EVENTS, NAMESPACE)).objects
        if event["involvedObject"]["name"] == "first" and event["reason"] == "GPUAllocated"
    ]
    assert "held by the MPS daemon's 50 % of the threads" in messages[0]
    assert "a fatal error of one program can end the others" in messages[0]


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


@pytest.mark.long
async def test_a_gpu_whose_daemon_died_is_offered_again_once_it_answers(mps: RealCluster) -> None:
    device, pod = min((await daemons(mps)).items())
    name = pod["metadata"]["name"]
    stop = ('rm "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"',)
    await mps.kubectl("-n", DRAY_NAMESPACE, "exec", name, "--", "sh", "-c", *stop)

    async def is_out() -> bool:
        return device in await unhealthy(mps)

    await mps.until(is_out, "the GPU of a daemon that does not answer is not offered")
    await mps.kubectl("-n", DRAY_NAMESPACE, "delete", "pod", name, "--wait=true")

    async def is_back() -> bool:
        now = (await daemons(mps)).get(device)
        is_new = now is not None and now["metadata"]["uid"] != pod["metadata"]["uid"]
        return is_new and device not in await unhealthy(mps)

    await mps.until(is_back, "the GPU is offered again")


def _container(pod: Object) -> tuple[str, int]:
    (status,) = pod["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]
