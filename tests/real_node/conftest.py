"""One cluster of two real nodes for all tests of a run."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.real_node.cluster import NODE_OF, RealCluster, node_in

from dray.bus.jetstream import connect as connect_bus
from dray_sandbox.layout import StackOptions
from dray_sandbox.stack import Stack
from tools.retry import connect_with_retries

MPS_TEMPLATE = Path(__file__).with_name("mps-daemon.yaml")
"""Of a stand-in for NVIDIA's MPS daemon."""
POOLS = """
apiVersion: tensor-fusion.ai/v1
kind: SchedulingConfigTemplate
metadata: {name: with-dra}
spec: {dra: {enable: true}}
---
apiVersion: tensor-fusion.ai/v1
kind: GPUPool
metadata: {name: dedicated}
spec: {dedicated: true, default: true, schedulingConfigTemplate: with-dra}
---
apiVersion: tensor-fusion.ai/v1
kind: GPUPool
metadata: {name: shared}
spec: {schedulingConfigTemplate: with-dra}
"""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_cluster() -> AsyncIterator[RealCluster]:
    """Two nodes with simulated GPUs, each in a pool; dray's services are processes."""
    nodes = tuple(map(node_in, NODE_OF))
    options = StackOptions(
        "test-node",
        control_plane="real",
        kubelet="real",
        nodes=nodes,
        settings={"DRAY_NODE__MPS_TEMPLATE": str(MPS_TEMPLATE)},
    )
    async with Stack(options, print) as stack:
        record = stack.record
        kube = await connect_with_retries(record.kubeconfig, user_agent="dray-test-node")
        bus = await connect_bus(
            record.nats_url, name="tests", user="admin", password=record.nats_passwords["admin"]
        )
        try:
            cluster = RealCluster(stack, kube, bus)
            await cluster.kubectl("apply", "-f", "-", stdin=POOLS)
            yield cluster
        finally:
            await bus.close()
            await kube.close()


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def no_pod_stays(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Delete what a test leaves on the shared cluster, also where it fails."""
    yield
    if "real_cluster" in request.fixturenames:
        cluster: RealCluster = request.getfixturevalue("real_cluster")
        # Not "all": that has the Service kubernetes, which returns seconds later.
        await cluster.kubectl("delete", "deployments,daemonsets", "--all", "--wait=false")
        made = ("services", "--field-selector=metadata.name!=kubernetes")
        await cluster.kubectl("delete", *made, "--wait=false")
        await cluster.delete(*await cluster.pods())
