"""Nodes are drained, replaced under the same name, added and removed."""

import asyncio
import json
import shutil

from tests.real_node.cluster import (
    DEDICATED,
    GPU_VARIABLE,
    GPUS,
    NODE_OF,
    REACH_THE_API,
    REAL_NODE,
    SHARED,
    RealCluster,
    node_in,
    pod_of,
)

from dray.api.names import DRIVER
from dray.kube.ports import NODES

pytestmark = REAL_NODE


async def test_a_drained_node_keeps_no_gpu_and_serves_again_when_it_may(
    real_cluster: RealCluster,
) -> None:
    node = NODE_OF[DEDICATED]
    template = pod_of("", DEDICATED, {"gpu-count": str(GPUS)})
    template["metadata"] |= {"labels": {"app": "drained"}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "drained"},
        "spec": {"selector": {"matchLabels": {"app": "drained"}}, "template": template},
    }
    await real_cluster.kubectl("apply", "-f", "-", stdin=json.dumps(deployment))
    await real_cluster.kubectl("rollout", "status", "deployment/drained", "--timeout=60s")
    (before,) = await real_cluster.pods()

    await real_cluster.kubectl("drain", node, "--timeout=60s")
    assert real_cluster.cdi_files(node) == []
    assert before not in await real_cluster.pods()

    async def has_no_slices() -> bool:
        return await real_cluster.slice_generation(node) == 0

    await real_cluster.until(has_no_slices, f"slices of {node} deleted")
    await real_cluster.kubectl("uncordon", node)
    await real_cluster.kubectl("rollout", "status", "deployment/drained", "--timeout=60s")

    (after,) = await real_cluster.pods()
    assert len((await real_cluster.environment(after))[GPU_VARIABLE].split(",")) == GPUS


async def test_a_node_that_is_replaced_under_its_name_serves_with_its_new_identity(
    real_cluster: RealCluster,
) -> None:
    """The old node's pod runs again on the new one, or is gone where pod-GC came first (40 s)."""
    name = NODE_OF[SHARED]
    await real_cluster.submit("of-the-old-node", SHARED)
    await real_cluster.running("of-the-old-node")
    uid = (await real_cluster.kube.get(NODES, name))["metadata"]["uid"]

    await real_cluster.stack.stop_node(name)
    await real_cluster.kubectl("delete", "node", name)
    await asyncio.to_thread(shutil.rmtree, real_cluster.node_files(name))
    await real_cluster.stack.start_node(node_in(SHARED))
    await real_cluster.node_is_ready(name, uid)

    async def runs_again_or_is_gone() -> bool:
        pod = (await real_cluster.pods()).get("of-the-old-node")
        statuses = [] if pod is None else pod["status"]["containerStatuses"]
        return all(one["restartCount"] and one["ready"] for one in statuses)

    await real_cluster.until(runs_again_or_is_gone, "the old node's pod runs again or is gone")
    if "of-the-old-node" in await real_cluster.pods():
        assert (await real_cluster.environment("of-the-old-node"))[GPU_VARIABLE]
        await real_cluster.delete("of-the-old-node")
    await real_cluster.submit("of-the-new-node", SHARED, gpu_count=str(GPUS))
    await real_cluster.running("of-the-new-node")
    await real_cluster.recounted()


async def test_a_pod_that_waits_runs_on_a_node_that_is_added(real_cluster: RealCluster) -> None:
    """What it does first needs the node's DNS and Services."""
    first = ["sh", "-c", f"{REACH_THE_API}; exec /stand-in"]
    containers = [{"name": "app", "image": "app", "command": first}]
    all_of_a_node = {"gpu-count": str(GPUS), "tflops-request": "312"}
    await real_cluster.submit("fills", DEDICATED, gpu_count=str(GPUS), tflops_request="312")
    await real_cluster.running("fills")
    await real_cluster.create(pod_of("waits", DEDICATED, all_of_a_node, containers=containers))

    await real_cluster.stack.start_node(node_in(DEDICATED, "sim-3"))
    await real_cluster.running("waits")
    assert (await real_cluster.pod("waits"))["spec"]["nodeName"] == "sim-3"
    printed = await real_cluster.kubectl("logs", "waits")
    assert printed.startswith("reached\n")

    await real_cluster.delete("waits")
    await real_cluster.stack.stop_node("sim-3")
    await real_cluster.kubectl("delete", "node", "sim-3")

    async def has_no_slices() -> bool:
        return await real_cluster.slice_generation("sim-3") == 0

    await real_cluster.until(has_no_slices, "slices of sim-3 deleted")


async def test_kube_scheduler_allocates_in_its_pools(real_cluster: RealCluster) -> None:
    """By claims, and by a resource that a DeviceClass stands for."""
    pool = {
        "apiVersion": "tensor-fusion.ai/v1",
        "kind": "GPUPool",
        "metadata": {"name": "by-kube-scheduler"},
        "spec": {"owner": "kube-scheduler", "schedulingConfigTemplate": "with-dra"},
    }
    by_name = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "by-name"},
        "spec": {
            "extendedResourceName": "example.com/gpu",
            "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}],
        },
    }
    for one in (pool, by_name):
        await real_cluster.kubectl("apply", "-f", "-", stdin=json.dumps(one))
    await real_cluster.stack.start_node(node_in("by-kube-scheduler", "sim-4"))
    await real_cluster.submit("theirs", "by-kube-scheduler", gpu_count="2")
    await real_cluster.running("theirs")

    assert (await real_cluster.pod("theirs"))["spec"]["nodeName"] == "sim-4"
    seen = await real_cluster.environment("theirs")
    assert len(seen[GPU_VARIABLE].split(",")) == 2
    assert await real_cluster.shell("theirs", "ls /dev/nvidia* | wc -l") == "2"

    limits = {"limits": {"example.com/gpu": "1"}}
    containers = [{"name": name, "image": "app", "resources": limits} for name in ("a", "b")]
    metadata, spec = {"name": "extended"}, {"containers": containers}
    await real_cluster.create({"metadata": metadata, "spec": spec})
    await real_cluster.running("extended")
    assert (await real_cluster.pod("extended"))["spec"]["nodeName"] == "sim-4"
    gpus = [(await real_cluster.environment("extended", one))[GPU_VARIABLE] for one in ("a", "b")]
    assert all(gpus)
    assert "," not in "".join(gpus)
    await real_cluster.delete("extended")
    await real_cluster.kubectl("delete", "deviceclass/by-name")

    await real_cluster.delete("theirs")
    await real_cluster.stack.stop_node("sim-4")
    await real_cluster.kubectl("delete", "node/sim-4", "gpupool/by-kube-scheduler")
