"""An API server that restarts while decisions are carried out."""

import asyncio
import json

from tests.conformance.path_b.cluster import ON_THE_REAL_ONE, Cluster

from dray_sandbox.controlplane.launch import API_SERVER
from tools.faults.plan import DEDICATED, SHARED

pytestmark = ON_THE_REAL_ONE
PODS_OF_EACH = 4
"""As many as there are cards on dedicated nodes, for servers that give whole ones."""


async def test_nothing_under_way_is_given_up_while_the_server_has_not_read_its_roles(
    cluster: Cluster,
) -> None:
    """kube-apiserver serves at once, and forbids everything for a moment."""
    log = cluster.stack.runner.log("claim-controller")
    before = len(log.read_bytes())
    pools = (DEDICATED, SHARED) if await cluster.keeps_taints() else (DEDICATED,)
    pods = [f"{pool}-{number}" for number in range(PODS_OF_EACH) for pool in pools]
    async with asyncio.TaskGroup() as users:
        for name in pods:
            users.create_task(cluster.submit(name, name.rpartition("-")[0]))

    await cluster.stack.kill(API_SERVER)
    await cluster.stack.restart(API_SERVER)

    await cluster.running(*pods)
    lines = [json.loads(line) for line in log.read_bytes()[before:].splitlines()]
    assert [line for line in lines if line["event"] == "Kubernetes refused a step"] == []
    assert [line for line in lines if line.get("reason") == "refused"] == []
