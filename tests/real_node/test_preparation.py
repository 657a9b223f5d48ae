"""Pods whose node is restarted, updated or new: none waits for the kubelet's next resync."""

import asyncio
import dataclasses
from typing import Any

from tests.real_node.cluster import DEDICATED, NODE_OF, REAL_NODE, SHARED, RealCluster

from dray.api.names import PREPARE_AGAIN
from dray.kube.ports import EVENTS, NODES
from dray_sandbox.paths import free_port
from dray_sandbox.probes import answers

pytestmark = REAL_NODE
FAILED = "FailedPrepareDynamicResources"
NODE = NODE_OF[DEDICATED]
AGENT = f"node-agent-{NODE}"


async def test_a_pod_born_while_its_agent_is_away_runs_once_it_is_back(
    real_cluster: RealCluster,
) -> None:
    await real_cluster.submit("before", DEDICATED)  # the agent knows its pool
    await real_cluster.running("before")
    await real_cluster.stack.kill(AGENT)
    await real_cluster.submit("born", DEDICATED)
    await real_cluster.until(lambda: has_event(real_cluster, "born", FAILED), "it has failed")
    await real_cluster.stack.restart(AGENT)
    await real_cluster.running("born")

    assert PREPARE_AGAIN in (await real_cluster.pod("born"))["metadata"]["annotations"]
    reason = "PreparationRetried"
    await real_cluster.until(lambda: has_event(real_cluster, "born", reason), "it is explained")
    await real_cluster.delete("before", "born")


async def test_no_preparation_fails_during_a_rolling_update(real_cluster: RealCluster) -> None:
    runner = real_cluster.stack.runner
    await real_cluster.submit("before", DEDICATED)
    await real_cluster.running("before")
    health = f"http://127.0.0.1:{(port := free_port())}/readyz"
    old = runner.program(AGENT)
    new = dataclasses.replace(
        old,
        name=f"{AGENT}-new",
        environment={**old.environment, "DRAY_HEALTH__PORT": str(port)},
        ready=answers(health),
        health_url=health,
    )
    names = [f"during-{number}" for number in range(3)]
    await runner.start(new)
    await real_cluster.submit(names[0], DEDICATED)
    await asyncio.gather(runner.stop(AGENT), real_cluster.submit(names[1], DEDICATED))
    await real_cluster.submit(names[2], DEDICATED)
    await real_cluster.running("before", *names)
    for name in names:
        assert "NVIDIA_VISIBLE_DEVICES" in await real_cluster.environment(name)
        assert not await has_event(real_cluster, name, FAILED)

    await runner.start(old)
    await runner.stop(new.name)
    await real_cluster.delete("before", *names)


async def test_pods_run_again_after_their_node_lost_its_power(real_cluster: RealCluster) -> None:
    node = NODE_OF[SHARED]
    await real_cluster.submit("reboots", SHARED)
    await real_cluster.running("reboots")
    before = (await container(real_cluster, "reboots"))["containerID"]
    programs = [
        f"{name}-{node}"
        for name in ("machine", "containerd", "kubelet", "kube-proxy", "node-agent")
    ]
    for name in reversed(programs):
        await real_cluster.stack.kill(name)
    for name in programs:
        await real_cluster.stack.restart(name)

    async def runs_again() -> bool:
        now = await container(real_cluster, "reboots")
        return bool(now["ready"] and now["containerID"] != before)

    await real_cluster.until(runs_again, "another container runs")
    assert "NVIDIA_VISIBLE_DEVICES" in await real_cluster.environment("reboots")
    await real_cluster.delete("reboots")


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


async def test_a_pod_shows_that_its_gpu_became_unhealthy(real_cluster: RealCluster) -> None:
    await real_cluster.submit("shows", DEDICATED)
    await real_cluster.running("shows")
    await real_cluster.until(lambda: shows(real_cluster, "shows", "Healthy"), "healthy")
    seen = (await real_cluster.environment("shows"))["NVIDIA_VISIBLE_DEVICES"]
    health_file = real_cluster.stack.nodes_directory / NODE / "dray" / "node-agent" / "unhealthy"
    health_file.write_text(f"{seen} xid-79\n")
    await real_cluster.until(lambda: shows(real_cluster, "shows", "Unhealthy"), "unhealthy")
    health_file.unlink()
    await real_cluster.until(lambda: shows(real_cluster, "shows", "Healthy"), "healthy again")
    kubelet = real_cluster.stack.runner.log(f"kubelet-{NODE}").read_text()
    assert "Method not found" not in kubelet
    await real_cluster.delete("shows")


async def has_event(cluster: RealCluster, pod: str, reason: str) -> bool:
    """Whether the pod has an event of that reason."""
    uid = (await cluster.pod(pod))["metadata"]["uid"]
    return any(
        event["involvedObject"].get("uid") == uid and event["reason"] == reason
        for event in (await cluster.kube.list(EVENTS, "default")).objects
    )


async def container(cluster: RealCluster, pod: str) -> dict[str, Any]:
    """The status of the pod's only container."""
    (status,) = (await cluster.pod(pod))["status"]["containerStatuses"]
    return dict(status)


async def shows(cluster: RealCluster, pod: str, health: str) -> bool:
    """Whether the pod's status has this health of its only GPU."""
    shown = (await container(cluster, pod)).get("allocatedResourcesStatus") or ()
    return [one["health"] for held in shown for one in held["resources"]] == [health]
