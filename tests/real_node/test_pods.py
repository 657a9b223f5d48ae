"""Pods with GPUs as real containers."""

import os

import pytest
from tests.real_node.cluster import DEDICATED, NODE_OF, REAL_NODE, SHARED, RealCluster

from dray_sandbox.node.specs import stand_in_device

pytestmark = REAL_NODE


@pytest.mark.parametrize("pool", [DEDICATED, SHARED])
async def test_a_container_sees_its_gpus(real_cluster: RealCluster, pool: str) -> None:
    name = f"sees-{pool}"
    await real_cluster.submit(name, pool, gpu_count="2", tflops_limit="120")
    await real_cluster.running(name)
    seen = await real_cluster.environment(name)
    claim = await real_cluster.claim_of(name)
    pod = await real_cluster.pod(name)

    assert pod["spec"]["nodeName"] == NODE_OF[pool]
    assert claim is not None
    devices = claim["status"]["allocation"]["devices"]["results"]
    assert len(seen["NVIDIA_VISIBLE_DEVICES"].split(",")) == len(devices) == 2
    assert seen["TENSOR_FUSION_GPU_COUNT"] == "2"
    assert seen["TENSOR_FUSION_TFLOPS_LIMIT"] == "120"
    await real_cluster.delete(name)


async def test_only_a_container_with_gpus_may_open_their_device_files(
    real_cluster: RealCluster,
) -> None:
    await real_cluster.submit("with-gpus", DEDICATED, gpu_count="2")
    await real_cluster.submit("without")
    await real_cluster.running("with-gpus", "without")
    # A container may make any device file; its cgroup says which one it may open.
    device = os.stat(stand_in_device()).st_rdev
    made = f"mknod /tmp/device c {os.major(device)} {os.minor(device)}"
    opened = "(: < /tmp/device) 2>/dev/null && echo opened || echo refused"
    count = "ls /dev/nvidia* 2>/dev/null | wc -l"

    assert await real_cluster.shell("with-gpus", count) == "2"
    assert await real_cluster.shell("without", count) == "0"
    assert await real_cluster.shell("with-gpus", f"{made}; {opened}") == "opened"
    assert await real_cluster.shell("without", f"{made}; {opened}") == "refused"
    await real_cluster.delete("with-gpus", "without")
