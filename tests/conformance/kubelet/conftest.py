"""One node for all tests of this folder: of the stand-in kubelet, and of a real one."""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.conformance.kubelet.node_stand import GPUS, NODE, NodeStand

from dray.api.names import POOL_LABEL
from dray.bus.jetstream import connect as connect_bus
from dray.kube.ports import POLICIES, POOLS
from dray_sandbox.layout import SimulatedNode, StackOptions
from dray_sandbox.stack import Stack
from tools.retry import connect_with_retries

HEALTH_SINCE = 36
"""The x of Kubernetes 1.x whose kubelet shows the health of devices by default."""
BOTH = [
    pytest.param("stand-in"),
    pytest.param("real", marks=[pytest.mark.real, pytest.mark.node]),
]


@pytest_asyncio.fixture(scope="package", loop_scope="session", params=BOTH)
async def one_node(request: pytest.FixtureRequest) -> AsyncIterator[NodeStand]:
    """The stack."""
    is_real = request.param == "real"
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    options = StackOptions(
        f"kubelet-{request.param}{worker}",
        control_plane="real" if is_real else "sandbox",
        kubelet="real" if is_real else "simulated",
        nodes=(SimulatedNode(NODE, gpus=GPUS, labels={POOL_LABEL: "one"}),),
        settings={"DRAY_NODE__SWEEP": "5s"},
    )
    async with Stack(options) as stack:
        record = stack.record
        kube = await connect_with_retries(record.kubeconfig, user_agent="dray-tests")
        bus = await connect_bus(
            record.nats_url, name="tests", user="admin", password=record.nats_passwords["admin"]
        )
        try:
            minor = int((await kube.version()).split(".")[1])
            stand = NodeStand(stack, kube, bus, is_real, shows_health=minor >= HEALTH_SINCE)
            kept = await stand.until(stand.published, "the probe")
            stand.shares_cards = kept.consumable_capacity
            policy = {"metadata": {"name": "with-dra"}, "spec": {"dra": {"enable": True}}}
            spec = {"schedulingConfigTemplate": "with-dra"}
            if not kept.device_taints:  # claims written by hand are refused in dray's own pools
                spec["owner"] = "kube-scheduler"
            await kube.create(POLICIES, policy)
            await kube.create(POOLS, {"metadata": {"name": "one"}, "spec": spec})
            yield stand
        finally:
            await bus.close()
            await kube.close()


@pytest_asyncio.fixture(loop_scope="session")
async def node(one_node: NodeStand) -> AsyncIterator[NodeStand]:
    """The node, without pods and claims of other tests."""
    yield one_node
    await one_node.clean_up()
