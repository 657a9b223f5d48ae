"""Agent and kubelet are killed at any moment: nothing is prepared twice, nothing is left behind,
and pods that run are not touched."""

import asyncio
import json
import random

from tests.conformance.kubelet.node_stand import AGENT, FAILED, ON_BOTH, NodeStand

from dray.kube.ports import PODS
from tools.rolling_update import start_second_agent

pytestmark = ON_BOTH


async def running_pod(node: NodeStand, name: str, gpu: int = 0) -> dict[str, object]:
    """A pod with a claim of the same name; its container."""
    await node.claim(name, [gpu], tflops="1")
    await node.run_pod(f"p-{name}", name)
    await node.running(f"p-{name}")
    return await node.container(f"p-{name}")


async def test_a_running_pod_does_not_notice_that_its_agent_is_killed(node: NodeStand) -> None:
    before = await running_pod(node, "c")
    await node.stack.kill(AGENT)
    await node.stack.restart(AGENT)
    await running_pod(node, "d", 1)
    after = await node.container("p-c")
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    await node.is_clean("c", "d")


async def test_a_running_pod_does_not_notice_that_its_kubelet_is_killed(node: NodeStand) -> None:
    before = await running_pod(node, "c")
    await node.stack.kill(node.kubelet)
    await node.stack.restart(node.kubelet)
    await running_pod(node, "d", 1)
    after = await node.container("p-c")
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    await node.gone("p-c", "p-d")
    await node.is_clean()


async def test_a_pod_born_while_its_agent_is_away_runs_once_it_is_back(node: NodeStand) -> None:
    await running_pod(node, "before")
    await node.stack.kill(AGENT)
    await node.claim("c", [1])
    await node.run_pod("born", "c")
    await node.until(lambda: node.has_event("born", FAILED), "it has failed")
    await node.stack.restart(AGENT)
    await node.running("born")
    reason = "PreparationRetried"
    await node.until(lambda: node.has_event("born", reason), "it is explained")


async def test_claims_of_pods_that_died_while_the_agent_was_away_are_cleaned(
    node: NodeStand,
) -> None:
    for index, name in enumerate(("deleted", "forced")):
        await running_pod(node, name, index)
    await node.stack.kill(AGENT)
    await node.gone("p-forced", force=True)
    await node.kube.delete(PODS, "p-deleted", "default")
    for name in ("deleted", "forced"):
        await node.remove_claim(name)
    await node.stack.restart(AGENT)
    await node.is_clean()


async def test_no_preparation_fails_during_a_rolling_update(node: NodeStand) -> None:
    await running_pod(node, "before")
    names = ["overlap", "ending", "after"]
    for index, name in enumerate(names, start=1):
        await node.claim(name, [index])
    new = await start_second_agent(node.stack, AGENT)
    await node.run_pod(names[0], names[0])
    await asyncio.gather(node.stack.runner.stop(AGENT), node.run_pod(names[1], names[1]))
    await node.run_pod(names[2], names[2])
    await node.running(*names)
    for name in names:
        assert not await node.has_event(name, FAILED)
    await node.is_clean("before", *names)
    await node.stack.restart(AGENT)
    await node.stack.runner.stop(new)


async def test_after_a_reboot_pods_see_their_gpus_again(node: NodeStand) -> None:
    before = await running_pod(node, "c", 2)
    await node.reboot()

    async def runs_again() -> bool:
        now = await node.container("p-c")
        return bool(now.get("ready") and now["containerID"] != before["containerID"])

    await node.until(runs_again, "another container runs")
    env = await node.environment("p-c")
    assert env["NVIDIA_VISIBLE_DEVICES"].lower() == await node.device(2)
    await node.is_clean("c")


async def test_a_corrupt_checkpoint_is_kept_and_rebuilt(node: NodeStand) -> None:
    before = await running_pod(node, "c")
    await node.stack.kill(AGENT)
    path = node.state_dir / "checkpoint.json"
    path.write_text(path.read_text()[:-20])
    await node.stack.restart(AGENT)
    await node.is_clean("c")
    assert list(node.state_dir.glob("checkpoint.json.corrupt-*"))
    assert (await node.container("p-c"))["containerID"] == before["containerID"]
    log = node.stack.runner.log(AGENT).read_text()
    assert "the checkpoint could not be used" in log


async def test_kills_at_any_moment_leave_nothing_behind(node: NodeStand) -> None:
    draw = random.Random(19)
    gpus = node.claims_at_once(12)
    names = [f"k{number}" for number in range(len(gpus))]
    for name, gpu in zip(names, gpus, strict=True):
        await node.claim(name, [gpu], tflops="1")

    async def kill() -> None:
        for name in [AGENT, node.kubelet, AGENT, AGENT]:
            await asyncio.sleep(draw.uniform(0.0, 0.6))  # any moment
            await node.stack.kill(name)
            await node.stack.restart(name)

    async def use() -> None:
        for name in names:
            await node.run_pod(f"p-{name}", name)
            await asyncio.sleep(draw.uniform(0.0, 0.2))

    await asyncio.gather(kill(), use())
    await node.running(*(f"p-{name}" for name in names))
    await node.is_clean(*names)
    held = json.loads((node.state_dir / "checkpoint.json").read_text())["data"]["claims"]
    assert all(one["phase"] == "PrepareCompleted" for one in held.values())
    await asyncio.gather(kill(), node.gone(*(f"p-{name}" for name in names)))
    await node.is_clean()
