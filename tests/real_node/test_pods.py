"""Pods with GPUs as real containers."""

import json
import os

import pytest
from tests.conformance.stand import results_of
from tests.real_node.cluster import (
    DEDICATED,
    GPU_VARIABLE,
    NODE_OF,
    REAL_NODE,
    SHARED,
    RealCluster,
    pod_of,
)

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
    assert len(seen[GPU_VARIABLE].split(",")) == len(results_of(claim)) == 2
    assert seen["TENSOR_FUSION_GPU_COUNT"] == "2"
    assert seen["TENSOR_FUSION_TFLOPS_LIMIT"] == "120"


async def test_init_containers_and_sidecars_see_the_gpus_of_their_pod(
    real_cluster: RealCluster,
) -> None:
    say = ["sh", "-c", "echo $" + GPU_VARIABLE]
    stay = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"]
    first = {"name": "first", "image": "app", "command": say}
    sidecar = {"name": "sidecar", "image": "app", "command": stay, "restartPolicy": "Always"}
    await real_cluster.create(pod_of("in-order", DEDICATED, initContainers=[first, sidecar]))
    await real_cluster.running("in-order")

    gpus = (await real_cluster.environment("in-order"))[GPU_VARIABLE]
    assert gpus
    assert (await real_cluster.environment("in-order", "sidecar"))[GPU_VARIABLE] == gpus
    assert (await real_cluster.kubectl("logs", "in-order", "-c", "first")).strip() == gpus


async def test_containers_with_requests_of_their_own_see_their_own_gpus(
    real_cluster: RealCluster,
) -> None:
    counts = {"container-gpu-count": json.dumps({"two": 2, "one": 1})}
    containers = [{"name": name, "image": "app"} for name in ("two", "one", "none")]
    await real_cluster.create(pod_of("each-its-own", SHARED, counts, containers=containers))
    await real_cluster.running("each-its-own")

    two = await real_cluster.environment("each-its-own", "two")
    one = await real_cluster.environment("each-its-own", "one")
    assert len(two[GPU_VARIABLE].split(",")) == 2
    assert len(one[GPU_VARIABLE].split(",")) == 1
    assert GPU_VARIABLE not in await real_cluster.environment("each-its-own", "none")


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


async def test_a_pod_that_ends_gives_its_gpus_back_and_leaves_no_cdi_file(
    real_cluster: RealCluster,
) -> None:
    node = NODE_OF[DEDICATED]
    before = real_cluster.cdi_files(node)
    done = {"name": "app", "image": "app", "command": ["true"]}
    await real_cluster.create(
        pod_of("ends", DEDICATED, {"gpu-count": "4"}, containers=[done], restartPolicy="Never")
    )
    await real_cluster.ended("ends")

    async def is_unprepared() -> bool:
        return real_cluster.cdi_files(node) == before

    await real_cluster.until(is_unprepared, "CDI files removed")
    await real_cluster.submit("next", DEDICATED, gpu_count="4", tflops_request="312")
    await real_cluster.running("next")
