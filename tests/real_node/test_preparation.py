"""Pods that wait for a node: none of them comes before the node's agent can prepare it."""

import asyncio

from tests.real_node.cluster import DEDICATED, NODE_OF, REAL_NODE, RealCluster

from dray.kube.ports import EVENTS, NODES

pytestmark = REAL_NODE
FAILED = "FailedPrepareDynamicResources"
NODE = NODE_OF[DEDICATED]
AGENT = f"node-agent-{NODE}"


async def test_pods_that_wait_for_a_node_run_when_it_joins(real_cluster: RealCluster) -> None:
    runner = real_cluster.stack.runner
    await runner.stop(AGENT)
    await runner.stop(f"kubelet-{NODE}")
    await real_cluster.kube.delete(NODES, NODE)
    names = [f"waits-{number}" for number in range(4)]
    for name in names:
        await real_cluster.submit(name, DEDICATED)
    await asyncio.gather(
        real_cluster.stack.restart(f"kubelet-{NODE}"), real_cluster.stack.restart(AGENT)
    )
    await real_cluster.running(*names)
    for name in names:
        assert not await has_event(real_cluster, name, FAILED)
    await real_cluster.delete(*names)


async def has_event(cluster: RealCluster, pod: str, reason: str) -> bool:
    """Whether the pod has an event of that reason."""
    uid = (await cluster.pod(pod))["metadata"]["uid"]
    return any(
        event["involvedObject"].get("uid") == uid and event["reason"] == reason
        for event in (await cluster.kube.list(EVENTS, "default")).objects
    )
