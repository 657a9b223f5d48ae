"""Pods with GPUs as real containers."""

import pytest
from tests.real_node.cluster import DEDICATED, NODE_OF, REAL_NODE, SHARED, RealCluster

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
