"""What the kubelet and the node-agent do together: prepare, show, unprepare."""

import asyncio

from tests.conformance.kubelet.node_stand import (
    FAILED,
    GPUS,
    ON_BOTH,
    NodeStand,
)
from tests.conformance.labels import Holders
from tests.conformance.left_out import only_where

from dray.kube.ports import PODS

pytestmark = ON_BOTH
NOT_SHARED = "cards are not shared"


async def test_a_container_sees_the_environment_of_its_claim(node: NodeStand) -> None:
    only_where(node.shares_cards, NOT_SHARED)
    await node.claim("c", [1], tflops="25", tflopsLimit="50", vramLimit="2Gi")
    await node.run_pod("p", "c")
    await node.running("p")
    env = await node.environment("p")

    assert env["NVIDIA_VISIBLE_DEVICES"].lower() == await node.device(1)
    assert env["TENSOR_FUSION_TFLOPS_REQUEST"] == "25"
    assert env["TENSOR_FUSION_VRAM_REQUEST"] == str(2**30)
    assert env["TENSOR_FUSION_TFLOPS_LIMIT"] == "50"
    assert env["TENSOR_FUSION_VRAM_LIMIT"] == str(2 * 2**30)
    assert env["TENSOR_FUSION_GPU_COUNT"] == "1"


async def test_a_container_sees_the_gpus_of_all_its_claims(node: NodeStand) -> None:
    for name, gpus in (("a", [0, 1]), ("b", [2]), ("c", [3])):
        await node.claim(name, gpus)
    await node.run_pod("p", "a", "b", "c")
    await node.running("p")
    seen = (await node.environment("p"))["NVIDIA_VISIBLE_DEVICES"].lower().split(",")

    assert sorted(seen) == sorted([await node.device(index) for index in range(GPUS)])


async def test_init_containers_and_sidecars_see_theirs(node: NodeStand) -> None:
    await node.claim("a", [0])
    await node.claim("b", [1])
    with_a, with_b = ({"claims": [{"name": name}]} for name in "ab")
    await node.run_pod(
        "p",
        *("a", "b"),
        initContainers=[
            {"name": "side", "image": "app", "restartPolicy": "Always", "resources": with_a},
        ],
        containers=[
            {"name": "app", "image": "app", "resources": with_b},
            {"name": "plain", "image": "app"},
        ],
    )
    await node.running("p")

    for container, index in (("side", 0), ("app", 1)):
        env = await node.environment("p", container)
        assert env["NVIDIA_VISIBLE_DEVICES"].lower() == await node.device(index)
    assert "NVIDIA_VISIBLE_DEVICES" not in await node.environment("p", "plain")


async def test_a_container_that_names_a_request_sees_its_gpu_alone(node: NodeStand) -> None:
    await node.claim("c", [2, 3])
    container = {"name": "app", "image": "app"}
    uses = {"claims": [{"name": "c", "request": "gpu-1"}]}
    await node.run_pod("p", "c", containers=[{**container, "resources": uses}])
    await node.running("p")

    env = await node.environment("p")
    assert env["NVIDIA_VISIBLE_DEVICES"].lower() == await node.device(3)


async def test_a_claim_stays_prepared_until_its_last_pod_is_gone(node: NodeStand) -> None:
    await node.claim("shared")
    await node.run_pod("first", "shared")
    await node.run_pod("second", "shared")
    await node.running("first", "second")
    await node.gone("first")
    await node.is_clean("shared")
    await node.gone("second")
    await node.is_clean()


async def test_many_claims_at_once_are_prepared_and_nothing_is_left_of_them(
    node: NodeStand,
) -> None:
    gpus = node.claims_at_once(10)
    names = [f"c{number}" for number in range(len(gpus))]
    for name, gpu in zip(names, gpus, strict=True):
        await node.claim(name, [gpu], tflops="1")
    await asyncio.gather(*(node.run_pod(f"p-{name}", name) for name in names))
    await node.running(*(f"p-{name}" for name in names))
    await node.is_clean(*names)
    await node.gone(*(f"p-{name}" for name in names))
    await node.is_clean()


async def test_a_claim_that_can_not_be_prepared_fails_alone_and_is_tried_when_its_pod_changes(
    node: NodeStand,
) -> None:
    only_where(node.shares_cards, NOT_SHARED)
    await node.claim("whole", tflops="300")
    await node.claim("too-much", tflops="300")
    await node.claim("fits", tflops="1")
    await node.run_pod("holder", "whole")
    await node.running("holder")
    await node.run_pod("waits", "too-much")
    await node.run_pod("runs", "fits")
    await node.running("runs")
    # 600 with "whole" alone, 601 if "fits" was prepared sooner.
    text = " of 312 virtual_tflops"
    await node.until(lambda: node.has_event("waits", FAILED, text), "it is refused")
    await node.gone("holder")
    touched = {"metadata": {"annotations": {"example.com/touched": "1"}}}
    await node.kube.patch(PODS, "waits", touched, "default")
    await node.running("waits")


async def test_unprepare_succeeds_without_the_claim(node: NodeStand) -> None:
    await node.claim("c")
    await node.run_pod("p", "c")
    await node.running("p")
    await node.remove_claim("c")
    await node.gone("p")
    await node.is_clean()


async def test_pods_show_the_health_of_their_gpus(node: NodeStand) -> None:
    only_where(node.shows_health, "its kubelet shows no health of devices")
    await node.claim("c", [0, 1])
    await node.run_pod("p", "c")
    await node.running("p")

    async def shows(*wanted: str) -> bool:
        shown = (await node.container("p")).get("allocatedResourcesStatus") or ()
        return [one["health"] for held in shown for one in held["resources"]] == list(wanted)

    await node.until(lambda: shows("Healthy", "Healthy"), "healthy")
    (node.state_dir / "unhealthy").write_text("1 xid-79\n")
    await node.until(lambda: shows("Healthy", "Unhealthy"), "one is unhealthy")
    (node.state_dir / "unhealthy").unlink()
    await node.until(lambda: shows("Healthy", "Healthy"), "healthy again")
    log = node.stack.runner.log(node.kubelet).read_text()
    assert "Method not found" not in log


async def test_metrics_name_the_containers_that_the_kubelet_lists(node: NodeStand) -> None:
    await node.claim("a", [0])
    await node.claim("b", [1])
    both, with_a = ({"claims": [{"name": one} for one in names]} for names in ("ab", "a"))
    first, side, app, other = (
        {"name": name, "image": "app"} for name in ("first", "side", "app", "other")
    )
    await node.run_pod(
        "p",
        *("a", "b"),
        initContainers=[
            {**first, "command": ["true"], "resources": with_a},
            {**side, "restartPolicy": "Always", "resources": with_a},
        ],
        containers=[{**app, "resources": both}, {**other, "resources": with_a}],
    )
    await node.run_pod("q", "a")
    await node.running("p", "q")
    device_a, device_b = await node.device(0), await node.device(1)
    wanted = {
        device_a: {("p", "side"), ("p", "app"), ("p", "other"), ("q", "app")},
        device_b: {("p", "app")},
    }

    async def shows(holders: Holders) -> bool:
        return await node.holders() == holders

    assert await node.listed() == wanted
    await node.until(lambda: shows(wanted), "the metrics name them")
    await node.gone("p", "q")
    await node.until(lambda: shows({}), "the metrics name nobody")


async def test_metrics_name_a_container_for_the_gpu_of_its_request_alone(node: NodeStand) -> None:
    await node.claim("c", [2, 3])
    uses = {"claims": [{"name": "c", "request": "gpu-1"}]}
    await node.run_pod("p", "c", containers=[{"name": "app", "image": "app", "resources": uses}])
    await node.running("p")
    named, other = await node.device(3), await node.device(2)

    async def shows() -> bool:
        return await node.holders() == {named: {("p", "app")}}

    await node.until(shows, "the metrics name it for one GPU")
    assert (await node.listed()).keys() == {named, other}  # not narrowed by requests


async def test_slices_come_back_after_a_restart_of_the_kubelet(node: NodeStand) -> None:
    device = await node.device()
    await node.stack.restart(node.kubelet)
    assert await node.device() == device
    await node.claim("c")
    await node.run_pod("p", "c")
    await node.running("p")
