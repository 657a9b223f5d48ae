"""Enforcers on a node: a GPU is offered, and a claim prepared, once its enforcer is ready."""

import json

import pytest

from dray.api.enforcement import Enforcement
from dray.kube.ports import PODS
from dray_node_agent.gpus.source import TimeSliceError

MPS = Enforcement(enforcer="mps", mps_threads_percent=50)
NAMESPACE = "dray-system"
GPUS = 4


async def answers(stand, name):
    """Play the kubelet: the daemon's container is ready."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await stand.kube.patch(PODS, name, {"status": status}, NAMESPACE, subresource="status")


async def uids(stand):
    pods = (await stand.kube.list(PODS, NAMESPACE)).objects
    return {one["metadata"]["uid"] for one in pods}


async def taints(stand):
    devices = [one for part in await stand.slices() for one in part["spec"].get("devices", ())]
    return {
        one["name"]: [
            taint["value"] for taint in one.get("taints", ()) if "unhealthy" in taint["key"]
        ]
        for one in devices
    }


async def test_a_gpu_is_offered_once_its_mps_daemon_answers(stand, eventually):
    stand.allow_mps()
    await stand.tell_node(pool="pool-a", enforcement=MPS)
    async with stand.agent():

        async def both() -> bool:
            return len(await stand.daemons()) == GPUS

        await eventually(both)
        first, second, *_ = await stand.daemons()
        await eventually(stand.slices)
        assert all((await taints(stand)).values())
        device = first.removeprefix("dray-mps-daemon-")
        await answers(stand, first)

        async def offered() -> bool:
            return not (await taints(stand))[device]

        await eventually(offered)
        assert (await taints(stand))[second.removeprefix("dray-mps-daemon-")]


async def test_a_claim_waits_for_the_daemon_and_gets_its_folders(stand, eventually):
    stand.allow_mps()
    await stand.tell_node(pool="pool-a", enforcement=MPS)
    async with stand.agent(), stand.kubelet():

        async def both() -> bool:
            return len(await stand.daemons()) == GPUS

        await eventually(both)
        first = (await stand.daemons())[0]
        device = first.removeprefix("dray-mps-daemon-")
        await eventually(stand.slices)
        await stand.make_claim("c1", [device])
        pod = await stand.make_pod("p1", {"gpu": "c1"})
        await stand.reserve("c1", pod)
        await answers(stand, first)
        await stand.reaches("p1", "Running")
        (name,) = stand.cdi_files()
        edits = json.loads((stand.group.cdi_dir / name).read_text())["devices"][0]["containerEdits"]
        assert f"/run/dray/mps/{device}/pipe" in {one["hostPath"] for one in edits["mounts"]}
        # Nothing ends under a claim, whatever the pool says now.
        await stand.tell_node(pool="pool-a", enforcement=Enforcement(enforcer="none"))

        async def only_that() -> bool:
            return await stand.daemons() == [first]

        await eventually(only_that)
        await stand.kube.delete(PODS, "p1", "default")

        async def none_left() -> bool:
            return not await stand.daemons()

        await eventually(none_left)


async def test_daemons_outlive_the_agent_and_are_known_to_the_next_one(stand, eventually):
    stand.allow_mps()
    await stand.tell_node(pool="pool-a", enforcement=MPS)
    async with stand.agent():

        async def both() -> bool:
            return len(await stand.daemons()) == GPUS

        await eventually(both)
        for name in await stand.daemons():
            await answers(stand, name)

        async def offered() -> bool:
            return bool(await stand.slices()) and not any((await taints(stand)).values())

        await eventually(offered)
    before = await uids(stand)
    generation = (await stand.slices())[0]["spec"]["pool"]["generation"]
    async with stand.agent() as health:
        await eventually(lambda: health.ready)
        assert await uids(stand) == before
        assert (await stand.slices())[0]["spec"]["pool"]["generation"] == generation


@pytest.mark.parametrize("text", ["[", "[]", "spec: []", "spec: {containers: [app]}"])
async def test_a_damaged_template_is_a_problem_and_ends_nothing(stand, eventually, text):
    stand.allow_mps()
    stand.mps_template.write_text(text)
    await stand.tell_node(pool="pool-a", enforcement=MPS)
    async with stand.agent():
        await eventually(stand.slices)
        assert all("can-t-be-set-up" in value[0] for value in (await taints(stand)).values())


async def test_a_card_is_offered_once_its_time_slice_is_set(stand, eventually, monkeypatch):
    refused, made = True, []

    def set_time_slice(self, uuid: str, number: int) -> None:
        if refused:
            raise TimeSliceError("nvidia-smi: not supported")
        made.append((uuid, number))

    monkeypatch.setattr(
        "dray_node_agent.gpus.simulated_gpus.SimulatedGpus.set_time_slice", set_time_slice
    )
    wanted = Enforcement(enforcer="timeslice", time_slice="Long")
    await stand.tell_node(pool="pool-a", enforcement=wanted)
    async with stand.agent():
        await eventually(stand.slices)
        assert all("not-supported" in value[0] for value in (await taints(stand)).values())
        refused = False

        async def offered() -> bool:
            return not any((await taints(stand)).values())

        await eventually(offered)
        assert [number for _, number in made] == [3, 3, 3, 3]
        await stand.tell_node(pool="pool-a")
        await eventually(lambda: [number for _, number in made[4:]] == [0, 0, 0, 0])
