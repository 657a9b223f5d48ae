"""From an allocated claim to a running pod and back, over the kubelet's real protocols."""

import json

import msgspec

from dray.api.names import DRIVER
from dray.bus.topology import EVENTS_STREAM
from dray.kube.ports import CLAIMS, EVENTS, NODES, PODS
from dray.messages.events import ClaimPrepared
from dray_sandbox.kubelet.plan import NODE_CAPACITY

CDI = "sandbox.dray.dev/cdi"


async def test_a_pod_runs_with_the_environment_of_its_card(stand, eventually):
    await stand.tell_node(qos="high")
    async with stand.agent(), stand.kubelet():
        device = await stand.device()
        limits = {
            "source": "FromClaim",
            "opaque": {
                "driver": DRIVER,
                "parameters": {
                    "apiVersion": "tensor-fusion.ai/v1",
                    "kind": "GPULimits",
                    "tflopsLimit": "150",
                    "vramLimit": "12Gi",
                },
            },
        }
        claim = await stand.make_claim("c", [device], config=[limits])
        pod = await stand.make_pod("p", {"gpu": "c"})
        await stand.reserve("c", pod)
        pod = await stand.reaches("p", "Running")

        recorded = json.loads(pod["metadata"]["annotations"][CDI])
        env = recorded["env"]["main"]
        uid = claim["metadata"]["uid"]
        assert recorded["cdi"]["main"] == [f"tensor-fusion.ai/gpu={uid}-{device}"]
        assert env["NVIDIA_VISIBLE_DEVICES"].lower() == device
        assert env["TENSOR_FUSION_TFLOPS_REQUEST"] == "100"
        assert env["TENSOR_FUSION_VRAM_REQUEST"] == str(10 * 2**30)
        assert env["TENSOR_FUSION_TFLOPS_LIMIT"] == "150"
        assert env["TENSOR_FUSION_VRAM_LIMIT"] == str(12 * 2**30)
        assert env["TENSOR_FUSION_QOS"] == "high"
        assert stand.cdi_files() == [f"tensor-fusion.ai-gpu_{uid}.json"]
        conditions = {one["type"]: one["status"] for one in pod["status"]["conditions"]}
        assert conditions == {
            "PodScheduled": "True",
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "ContainersReady": "True",
            "Ready": "True",
        }
        assert pod["status"]["containerStatuses"][0]["state"]["running"]
        assert pod["status"]["podIP"] != pod["status"]["hostIP"]

        await stand.kube.delete(PODS, "p", "default")
        await stand.is_gone("p")
        assert stand.cdi_files() == []
        assert stand.checkpoint() == {}


async def test_a_prepared_claim_is_published(stand):
    async with stand.agent(), stand.kubelet():
        claim = await stand.make_claim("c", [await stand.device()])
        await stand.reserve("c", await stand.make_pod("p", {"gpu": "c"}))
        await stand.reaches("p", "Running")
        async for delivered in stand.bus.read(EVENTS_STREAM):
            event = msgspec.json.decode(delivered.payload, type=ClaimPrepared)
            assert event.claim_uid == claim["metadata"]["uid"]
            assert event.node == "n1"
            assert event.cdi_device_ids
            break


async def test_a_pod_waits_until_its_claim_is_reserved_for_it(stand, eventually):
    async with stand.agent(), stand.kubelet():
        await stand.make_claim("c", [await stand.device()])
        pod = await stand.make_pod("p", {"gpu": "c"})

        async def output_of() -> list[str]:
            return [e["message"] for e in (await stand.kube.list(EVENTS)).objects]

        messages = await eventually(output_of)
        assert "not in reservedFor" in messages[0]
        assert await stand.phase("p") == "Pending"
        assert stand.cdi_files() == []
        await stand.reserve("c", pod)
        await stand.reaches("p", "Running")


async def test_a_shared_claim_stays_prepared_until_its_last_pod_ends(stand, eventually):
    async with stand.agent(), stand.kubelet():
        await stand.make_claim("c", [await stand.device()])
        first = await stand.make_pod("first", {"gpu": "c"})
        second = await stand.make_pod("second", {"gpu": "c"})
        await stand.reserve("c", first, second)
        await stand.reaches("first", "Running")
        await stand.reaches("second", "Running")
        await stand.kube.delete(PODS, "first", "default")
        await stand.is_gone("first")
        assert len(stand.cdi_files()) == 1
        await stand.kube.delete(PODS, "second", "default")
        await stand.is_gone("second")
        assert stand.cdi_files() == []


async def test_a_pod_that_ends_gives_its_card_back_before_it_is_deleted(stand, eventually):
    async with stand.agent(), stand.kubelet():
        await stand.make_claim("c", [await stand.device()])
        pod = await stand.make_pod(
            "p", {"gpu": "c"}, annotations={"sandbox.dray.dev/exit-after": "0s"}
        )
        await stand.reserve("c", pod)
        await stand.reaches("p", "Succeeded")
        await eventually(lambda: stand.cdi_files() == [])


async def test_unprepare_works_when_the_claim_is_gone(stand):
    async with stand.agent(), stand.kubelet():
        await stand.make_claim("c", [await stand.device()])
        await stand.reserve("c", await stand.make_pod("p", {"gpu": "c"}))
        await stand.reaches("p", "Running")
        await stand.kube.delete(CLAIMS, "c", "default")
        await stand.kube.delete(PODS, "p", "default")
        await stand.is_gone("p")
        assert stand.cdi_files() == []
        assert stand.checkpoint() == {}


async def test_claims_that_oversell_a_card_do_not_start(stand, eventually):
    async with stand.agent(), stand.kubelet():
        device = await stand.device()
        await stand.make_claim("fits", [device], tflops="300")
        await stand.make_claim("double", [device], tflops="100")
        await stand.reserve("fits", await stand.make_pod("p", {"gpu": "fits"}))
        await stand.reaches("p", "Running")
        await stand.reserve("double", await stand.make_pod("q", {"gpu": "double"}))

        async def complained() -> bool:
            events = (await stand.kube.list(EVENTS)).objects
            return any("would give out 400 of 312 virtual_tflops" in e["message"] for e in events)

        await eventually(complained)
        assert await stand.phase("q") == "Pending"
        await stand.kube.delete(PODS, "p", "default")
        await stand.reaches("q", "Running")


async def test_a_pod_beyond_the_node_is_rejected_for_good(stand):
    async with stand.kubelet():
        await stand.make_pod("big", resources={"requests": {"cpu": "60"}})
        await stand.reaches("big", "Running")
        await stand.make_pod("more", resources={"requests": {"cpu": "5"}})
        pod = await stand.reaches("more", "Failed")
        assert pod["status"]["reason"] == "OutOfcpu"
        assert "requested: 5000, used: 60000, capacity: 64000" in pod["status"]["message"]


async def test_the_node_object_is_ready_with_its_size_and_lease(stand, eventually):
    async with stand.kubelet():

        async def ready() -> bool:
            nodes = (await stand.kube.list(NODES)).objects
            return bool(nodes) and nodes[0]["status"]["conditions"][0]["type"] == "Ready"

        await eventually(ready)
        node = await stand.kube.get(NODES, "n1")
        assert node["status"]["allocatable"] == NODE_CAPACITY


async def test_a_container_sees_the_gpus_of_all_its_claims(stand, eventually):
    async with stand.agent(), stand.kubelet():
        devices = [await stand.device(index) for index in range(3)]
        await stand.make_claim("one", devices[:2])
        await stand.make_claim("two", devices[2:])
        pod = await stand.make_pod("p", {"a": "one", "b": "two"})
        await stand.reserve("one", pod)
        await stand.reserve("two", pod)
        pod = await stand.reaches("p", "Running")
        env = json.loads(pod["metadata"]["annotations"][CDI])["env"]["main"]
        seen = env["NVIDIA_VISIBLE_DEVICES"].lower().split(",")
        assert seen == devices
        assert env["TENSOR_FUSION_GPU_COUNT"] == "3"


async def test_a_claim_of_several_pods_names_its_own_gpus(stand, eventually):
    async with stand.agent(), stand.kubelet():
        await stand.make_claim("shared", [await stand.device(0)])
        pods = [await stand.make_pod(name, {"s": "shared"}) for name in ("p", "q")]
        await stand.reserve("shared", *pods)
        for name in ("p", "q"):
            pod = await stand.reaches(name, "Running")
            env = json.loads(pod["metadata"]["annotations"][CDI])["env"]["main"]
            assert env["NVIDIA_VISIBLE_DEVICES"].lower() == await stand.device(0)
