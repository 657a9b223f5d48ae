"""One cluster of two real nodes for all tests of a run."""

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.real_node.cluster import DEDICATED, GPUS, NODE_OF, SHARED, RealCluster

from dray.api.names import POOL_LABEL
from dray.bus.jetstream import connect as connect_bus
from dray_sandbox.layout import SimulatedNode, StackOptions
from dray_sandbox.retry import connect_with_retries
from dray_sandbox.stack import Stack

POOLS = """
apiVersion: tensor-fusion.ai/v1
kind: SchedulingConfigTemplate
metadata: {name: with-dra}
spec: {dra: {enable: true}}
---
apiVersion: tensor-fusion.ai/v1
kind: GPUPool
metadata: {name: dedicated}
spec: {dedicated: true, schedulingConfigTemplate: with-dra}
---
apiVersion: tensor-fusion.ai/v1
kind: GPUPool
metadata: {name: shared}
spec: {schedulingConfigTemplate: with-dra}
"""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_cluster() -> AsyncIterator[RealCluster]:
    """Two nodes with simulated GPUs, each in a pool; dray's services are processes."""
    nodes = tuple(
        SimulatedNode(NODE_OF[pool], gpus=GPUS, labels={POOL_LABEL: pool})
        for pool in (DEDICATED, SHARED)
    )
    options = StackOptions("test-node", control_plane="real", kubelet="real", nodes=nodes)
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
