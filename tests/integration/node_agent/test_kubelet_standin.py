"""The kubelet's stand-in where kubelets are nasty: wiping, same names, two nodes, tests' hooks."""

import asyncio
from dataclasses import replace

import pytest

from dray.api.names import DRIVER
from dray.kube.ports import EVENTS, NODES, PODS, SLICES, KubeUnavailableError
from dray_sandbox.controllers.node_rules import unknown_status
from dray_sandbox.kubelet.claims import NotStartedError
from dray_sandbox.kubelet.kubelet import Kubelet, Kubelets, running_kubelets
from dray_sandbox.kubelet.node import NodeObject
from dray_sandbox.kubelet.plugins import Plugin
from dray_sandbox.kubelet.timings import KubeletTimings

PROMPT = KubeletTimings(registration_s=0.02, resync_s=0.05)

HOLD = "sandbox.dray.dev/hold"


async def test_slices_of_a_driver_that_stays_away_are_wiped(stand, eventually):
    timings = replace(PROMPT, wipe_s=0.1)
    kubelet = Kubelet(stand.kube.peer(), stand.plan, timings=timings)
    task = asyncio.create_task(Kubelets(stand.kube.peer(), [kubelet]).run())
    async with stand.agent():
        await kubelet.plugins.registered(DRIVER)
        await eventually(stand.slices)

    async def wiped() -> bool:
        return not await stand.slices()

    await eventually(wiped)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_slices_wiped_by_a_kubelet_that_starts_are_published_again(stand, eventually):
    async with stand.agent():
        before = (await eventually(stand.slices))[0]["metadata"]["uid"]
        async with stand.kubelet():

            async def created_again() -> bool:
                found = await stand.slices()
                return bool(found) and found[0]["metadata"]["uid"] != before

            await eventually(created_again)
            assert (await stand.slices())[0]["spec"]["pool"]["generation"] > 1


async def test_other_nodes_slices_are_never_wiped(stand, eventually):
    spec = {"driver": DRIVER, "nodeName": "n2", "pool": {"name": "n2", "generation": 1}}
    await stand.kube.create(SLICES, {"metadata": {"name": "theirs"}, "spec": spec})
    async with stand.kubelet():
        await stand.make_pod("p")
        await stand.reaches("p", "Running")
        assert [one["metadata"]["name"] for one in await stand.slices()] == ["theirs"]


async def test_a_pod_created_again_under_its_name_is_another_pod(stand):
    async with stand.kubelet():
        first = await stand.make_pod("p")
        await stand.reaches("p", "Running")
        await stand.kube.delete(PODS, "p", "default", grace_period_s=0)
        second = await stand.make_pod("p")
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        await stand.reaches("p", "Running")
        assert (await stand.pod("p"))["metadata"]["uid"] == second["metadata"]["uid"]


async def test_a_held_pod_starts_when_it_is_let_go(stand, eventually):
    async with stand.kubelet():
        await stand.make_pod("p", annotations={HOLD: "yes"})

        async def is_reported() -> bool:
            return any(HOLD in one["message"] for one in (await stand.kube.list(EVENTS)).objects)

        await eventually(is_reported)
        assert await stand.phase("p") == "Pending"
        await stand.kube.patch(PODS, "p", {"metadata": {"annotations": {HOLD: None}}}, "default")
        await stand.reaches("p", "Running")


async def test_a_pod_without_its_driver_waits_and_can_be_deleted(stand, eventually):
    async with stand.kubelet():
        await stand.make_claim("c", ["gpu-1"])
        await stand.reserve("c", await stand.make_pod("p", {"gpu": "c"}))

        async def is_reported() -> bool:
            events = (await stand.kube.list(EVENTS)).objects
            return any("is not registered" in one["message"] for one in events)

        await eventually(is_reported)
        await stand.kube.delete(PODS, "p", "default")
        await stand.is_gone("p")


async def test_one_process_plays_several_nodes(stand, eventually):
    other = replace(stand.plan, name="n2", labels={"zone": "b"})
    async with running_kubelets(stand.kube.peer(), stand.plan, other, timings=PROMPT):
        await eventually(lambda: _names(stand, {"n1", "n2"}))
        await stand.make_pod("one")
        stand.node = "n2"
        await stand.make_pod("two", nodeSelector={"zone": "b"})
        one, two = await stand.reaches("one", "Running"), await stand.reaches("two", "Running")
        assert one["status"]["hostIP"] != two["status"]["hostIP"]
        assert one["status"]["podIP"] != two["status"]["podIP"]


async def test_a_deleted_pod_gives_its_room_back(stand):
    async with stand.kubelet():
        await stand.make_pod("a", resources={"requests": {"memory": "500Gi"}})
        await stand.reaches("a", "Running")
        await stand.kube.delete(PODS, "a", "default")
        await stand.is_gone("a")
        await stand.make_pod("b", resources={"requests": {"memory": "500Gi"}})
        await stand.reaches("b", "Running")


async def test_a_restarted_kubelet_counts_the_pods_that_run(stand):
    async with stand.kubelet():
        await stand.make_pod("a", resources={"requests": {"cpu": "60"}})
        await stand.reaches("a", "Running")
    async with stand.kubelet():
        await stand.make_pod("b", resources={"requests": {"cpu": "60"}})
        assert (await stand.reaches("b", "Failed"))["status"]["reason"] == "OutOfcpu"


async def test_a_not_ready_taint_is_taken_off(stand, eventually):
    node = {
        "metadata": {"name": "n1"},
        "spec": {
            "taints": [
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
                {"key": "mine", "effect": "NoSchedule"},
            ]
        },
    }
    await stand.kube.create(NODES, node)
    async with stand.kubelet():

        async def ready() -> bool:
            taints = (await stand.kube.get(NODES, "n1"))["spec"]["taints"]
            return [taint["key"] for taint in taints] == ["mine"]

        await eventually(ready)


async def _names(stand, wanted: set[str]) -> bool:
    found = {one["metadata"]["name"] for one in (await stand.kube.list(NODES)).objects}
    return wanted <= found


async def test_a_call_in_flight_when_its_plugin_leaves_is_tried_with_the_next(stand, eventually):
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(*_):
        asked.set()
        await answer.wait()

    async with stand.kubelet():
        async with stand.agent():
            await stand.make_claim("c", [await stand.device()])
            pod = await stand.make_pod("p", {"gpu": "c"})
            stand.kubes[-1].before["get"] = slow
            await stand.reserve("c", pod)
            await asked.wait()
            asyncio.get_running_loop().call_later(0.2, answer.set)
        async with stand.agent():
            await stand.reaches("p", "Running")


async def test_a_plugin_that_was_closed_has_no_health(folder):
    plugin = Plugin(DRIVER, str(folder / "dra.sock"), "v1.DRAPlugin")
    await plugin.close()
    with pytest.raises(NotStartedError, match="WatchResources"):
        await anext(plugin.health())


async def test_a_shared_claim_passes_from_pod_to_pod_without_a_gap(stand, eventually):
    async with stand.agent(), stand.kubelet():
        await stand.make_claim("c", [await stand.device()])
        pods = []
        for number in range(4):
            pods.append(await stand.make_pod(f"p{number}", {"gpu": "c"}))
            await stand.reserve("c", *pods)
            if number:
                await stand.kube.delete(PODS, f"p{number - 1}", "default")
        await stand.reaches("p3", "Running")
        for number in range(3):
            await stand.is_gone(f"p{number}")
        assert len(stand.cdi_files()) == len(stand.checkpoint()) == 1
        await stand.kube.delete(PODS, "p3", "default")
        await stand.is_gone("p3")
        assert stand.cdi_files() == []


async def test_a_pod_that_selects_a_label_given_after_the_start_runs(stand, eventually):
    async with stand.kubelet():
        await eventually(lambda: _names(stand, {"n1"}))
        await stand.kube.patch(NODES, "n1", {"metadata": {"labels": {"added": "later"}}})
        await stand.make_pod("p", nodeSelector={"added": "later"})
        await stand.reaches("p", "Running")
        await stand.make_pod("q", nodeSelector={"added": "never"})
        assert (await stand.reaches("q", "Failed"))["status"]["reason"] == "NodeAffinity"


async def test_a_kubelet_that_was_silent_makes_its_node_ready_again(stand, eventually):
    async with stand.kubelet(replace(PROMPT, renew_s=0.01)):
        await eventually(lambda: _names(stand, {"n1"}))
        node = await stand.kube.get(NODES, "n1")
        await stand.kube.patch(
            NODES,
            "n1",
            {"status": unknown_status(node, "2026-11-21T15:00:00Z")},
            subresource="status",
        )

        async def ready() -> bool:
            (condition,) = (await stand.kube.get(NODES, "n1"))["status"]["conditions"]
            return condition["status"] == "True"

        await eventually(ready)


async def test_a_lease_that_could_not_be_renewed_is_tried_again_at_once(stand, monkeypatch):
    """Two periods without a renewal are all that a local stack waits for."""
    failed, renewed, renew = [], asyncio.Event(), NodeObject._renew

    async def fail_once(node: NodeObject) -> None:
        if not failed:
            failed.append(node)
            raise KubeUnavailableError("away")
        await renew(node)
        renewed.set()

    monkeypatch.setattr(NodeObject, "_renew", fail_once)
    async with stand.kubelet(replace(PROMPT, renew_s=600.0)), asyncio.timeout(60):
        await renewed.wait()


async def test_a_deleted_node_comes_back_only_with_a_new_kubelet(stand, eventually):
    async with stand.kubelet(replace(PROMPT, renew_s=0.01)):
        await eventually(lambda: _names(stand, {"n1"}))
        await stand.kube.delete(NODES, "n1")
        await stand.make_pod("p")
        await stand.reaches("p", "Running")  # after it, the kubelet has noticed
        assert not (await stand.kube.list(NODES)).objects
    async with stand.kubelet():
        await eventually(lambda: _names(stand, {"n1"}))


async def test_containers_of_a_rebooted_node_start_again_before_its_turn_to_register(
    stand, eventually, monkeypatch
):
    """Thousands of nodes register a few at a time; their pods come at once."""
    async with stand.kubelet():
        await stand.make_pod("p")
        before = (await stand.reaches("p", "Running"))["status"]["containerStatuses"][0]
    (stand.plan.cdi_dir / ".kubelet-has-run").unlink()
    monkeypatch.setattr("dray_sandbox.kubelet.kubelet._REGISTERING_AT_ONCE", 0)

    async def runs_again() -> bool:
        (now,) = (await stand.kube.get(PODS, "p", "default"))["status"]["containerStatuses"]
        return now["ready"] and now["containerID"] != before["containerID"]

    async with stand.kubelet():
        await eventually(runs_again)
