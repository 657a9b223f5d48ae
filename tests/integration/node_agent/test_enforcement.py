"""Enforcers on a node: a GPU is offered, and a claim prepared, once its enforcer is ready."""

import json

import msgspec
import pytest

from dray.api.enforcement import Enforcement, guarantee
from dray.api.names import DRIVER
from dray.api.pods import Node
from dray.kube.ports import PODS
from dray.messages.base import encode
from dray.messages.facts import NodeObserved
from dray_node_agent.gpus.source import TimeSliceError
from dray_node_agent.kubelet.preparer import Preparer

MPS = Enforcement(enforcer="mps", mps_threads_percent=50)
NAMESPACE = "dray-system"
CDI = "sandbox.dray.dev/cdi"
GPUS = 4


async def answers(stand, name, *, is_ready=True):
    """Play the kubelet: whether the daemon's container is ready."""
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    status = {"phase": "Running", "conditions": conditions}
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


async def test_a_gpu_is_tainted_while_its_daemon_is_gone_and_its_claims_wait_with_the_reason(
    stand, eventually, monkeypatch
):
    # So long the agent waits itself before the kubelet hears the reason.
    monkeypatch.setitem(Preparer.__init__.__kwdefaults__, "patience_s", 0.1)
    stand.allow_mps()
    await stand.tell_node(pool="pool-a", enforcement=MPS)
    async with stand.agent(), stand.kubelet():

        async def all_offered() -> bool:
            return bool(await stand.slices()) and not any((await taints(stand)).values())

        await eventually(all_offered)  # the kubelet runs the daemons
        first = (await stand.daemons())[0]
        device = first.removeprefix("dray-mps-daemon-")
        await make_limited_pod(stand, "before", device)
        await stand.reaches("before", "Running")
        await answers(stand, first, is_ready=False)

        async def is_tainted() -> bool:
            return [name for name, found in (await taints(stand)).items() if found] == [device]

        await eventually(is_tainted)
        await make_limited_pod(stand, "after", device)

        async def reason() -> bool:
            return any(
                one["involvedObject"]["name"] == "after"
                and f"its MPS daemon does not answer: pod {NAMESPACE}/{first}" in one["message"]
                for one in await stand.events()
            )

        await eventually(reason)
        assert (await stand.phase("before"), await stand.phase("after")) == ("Running", "Pending")
        await stand.kube.delete(PODS, first, NAMESPACE)  # the agent starts it again
        await eventually(all_offered)
        await stand.reaches("after", "Running")


THREADS, MEMORY = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
LIMITERS = {
    THREADS: "100",
    MEMORY: "",
    "CUDA_DEVICE_SM_LIMIT": "",
    "CUDA_DEVICE_MEMORY_LIMIT_0": "",
}
"""What a tenant sets to be rid of its limits."""


@pytest.mark.parametrize(
    ("enforcement", "given", "of_daemon", "event"),
    [
        (Enforcement(enforcer="none"), {}, {}, ""),
        (
            Enforcement(enforcer="env"),
            {"CUDA_DEVICE_SM_LIMIT": "30", "CUDA_DEVICE_MEMORY_LIMIT_0": "8192m"},
            {},
            "hold only while the image loads a limiter library and no program changes them",
        ),
        (Enforcement(enforcer="timeslice"), {}, {}, "nothing limits their memory"),
        (
            Enforcement(enforcer="mps", mps_threads_percent=50, mps_memory="20Gi"),
            {THREADS: "30", MEMORY: "0=8192M"},
            {THREADS: "50", MEMORY: "0=20480M"},
            "a program that changes them is held by the MPS daemon's 50 % of the threads and 20Gi "
            "of memory; one that leaves MPS has no limit, unless the GPU's compute mode is "
            "EXCLUSIVE_PROCESS; a fatal error of one program can end the others on the GPU",
        ),
        (Enforcement(enforcer="mps"), {THREADS: "30", MEMORY: "0=8192M"}, {}, "held by nothing"),
    ],
    ids=lambda value: value.enforcer if isinstance(value, Enforcement) else "",
)
async def test_a_tenant_undoes_its_variables_and_what_then_holds_is_in_the_event(
    stand, enforcement, given, of_daemon, event
):
    stand.allow_mps()
    await stand.tell_node(pool="pool-a", enforcement=enforcement)
    async with stand.agent(), stand.kubelet():
        device = await stand.device()
        await make_limited_pod(stand, "p", device, env=LIMITERS)
        await stand.reaches("p", "Running")
        started = json.loads((await stand.pod("p"))["metadata"]["annotations"][CDI])["env"]["main"]
        # CDI comes after the manifest's variables, so the pod's own have no effect ...
        assert {name: started[name] for name in LIMITERS if name in started} == given
        # ... and its programs can change them all: no other variable or folder limits them.
        assert not [
            name for name in started.keys() - LIMITERS.keys() if "CUDA" in name and "LIM" in name
        ]
        (file,) = stand.cdi_files()
        (one,) = json.loads((stand.group.cdi_dir / file).read_text())["devices"]
        edits = one["containerEdits"]
        folders = [one["hostPath"] for one in edits.get("mounts", ())]
        own = f"/run/dray/mps/{device}"
        is_mps = enforcement.enforcer == "mps"
        assert folders == ([f"{own}/pipe", f"{own}/shm"] if is_mps else [])
        # What the daemon started with, in a namespace and a folder that the tenant does not reach.
        daemons = (await stand.kube.list(PODS, NAMESPACE)).objects
        found = [
            {one["name"]: one["value"] for one in daemon["spec"]["containers"][0]["env"]}
            for daemon in daemons
        ]
        assert len(found) == (GPUS if is_mps else 0)
        limits = [{name: one[name] for name in (THREADS, MEMORY) if name in one} for one in found]
        assert all(one == of_daemon for one in limits)
    held = guarantee(enforcement, "")
    assert event in held
    assert bool(event) == bool(held)


@pytest.mark.parametrize("release", ["this", "the one before"])
async def test_a_pool_without_an_enforcer_is_offered_at_once_by_facts_of_either_release(
    stand, release
):
    stand.allow_mps()
    fact = NodeObserved(revision=1, node=Node("n1", "uid", pool="pool-a"))
    message = encode(fact, source="test")
    if release == "the one before":
        content = json.loads(message.payload)
        for field in ("enforcement", "unhealthy_effect"):
            del content["node"][field]
        message = msgspec.structs.replace(message, payload=json.dumps(content).encode())
    await stand.bus.publish(message)
    async with stand.agent(), stand.kubelet():
        device = await stand.device()
        assert not any((await taints(stand)).values())
        await make_limited_pod(stand, "p", device, isolation="soft")
        await stand.reaches("p", "Running")
        started = json.loads((await stand.pod("p"))["metadata"]["annotations"][CDI])["env"]["main"]
        assert started["CUDA_DEVICE_SM_LIMIT"] == "30"
        assert await stand.daemons() == []


async def make_limited_pod(stand, name, device, *, env=(), **more):
    """A pod on a GPU, with limits."""
    parameters = {
        "apiVersion": "tensor-fusion.ai/v1",
        "kind": "GPUShareConfig",
        "vramLimit": "8Gi",
        "computePercentLimit": "30",
        **more,
    }
    opaque = {"driver": DRIVER, "parameters": parameters}
    config = [{"source": "FromClaim", "opaque": opaque}]
    await stand.make_claim(name, [device], config=config, tflops="10", vram="1Gi")
    own = [{"name": key, "value": value} for key, value in dict(env).items()]
    pod = await stand.make_pod(name, {"gpu": name}, container={"env": own})
    await stand.reserve(name, pod)


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
