"""Whose GPUs the metrics show: by the kubelet's pod resources API, or without it by the claims."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dray_node_agent.kubelet import client
from dray_node_agent.kubelet.generated import pod_resources_pb2
from dray_node_agent.kubelet.pod_resources import (
    ContainerFollower,
    PodResourcesUnavailableError,
    listed_containers,
)
from dray_node_agent.kubelet.server import serving

UNKNOWN = {("", "", "")}


def holders(health: Any) -> dict[str, set[tuple[str, str, str]]]:
    """Namespace, pod and container of who has a GPU, by the device's name."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    page = prometheus_client.generate_latest(health.registry).decode()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "DCGM_FI_DEV_FB_USED":
                of = tuple(sample.labels[name] for name in ("namespace", "pod", "container"))
                found.setdefault(sample.labels["UUID"].lower(), set()).add(of)
    return found


@asynccontextmanager
async def lister(stand: Any, answer: Any) -> AsyncIterator[None]:
    """A kubelet's pod resources API that answers with what ``answer()`` returns, as bytes."""

    async def listed(_: Any, __: Any) -> Any:
        return await answer()

    handler = grpc.unary_unary_rpc_method_handler(listed)
    service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler})
    server = await serving(stand.group.pod_resources, [service])
    try:
        yield
    finally:
        await server.stop(0)


async def test_containers_that_share_a_claim_have_a_series_each_and_others_none(stand, eventually):
    await stand.tell_node()
    async with stand.agent() as health, stand.kubelet():
        device = await stand.device()
        await stand.make_claim("c", [device])
        uses = {"resources": {"claims": [{"name": "gpu"}]}}
        pod = await stand.make_pod(
            "p",
            {"gpu": "c"},
            initContainers=[
                {"name": "first", "image": "app", **uses},
                {"name": "side", "image": "app", "restartPolicy": "Always", **uses},
            ],
            container=uses,
        )
        await stand.reserve("c", pod)
        await stand.reaches("p", "Running")
        held = {("default", "p", "main"), ("default", "p", "side")}
        await eventually(lambda: holders(health).get(device) == held)
        others = [of for name, of in holders(health).items() if name != device]
        assert others == [UNKNOWN] * 3
        assert "pod-resources" not in degraded(health)


def degraded(health: Any) -> dict[str, str]:
    """What /readyz says without being unready."""
    found = {name: check() for name, check in health._degraded.items()}
    return {name: problem for name, problem in found.items() if problem}


async def run_pod(stand: Any) -> str:
    """Run pod ``p`` with claim ``c``, and end the kubelet; the claim's device."""
    device = await stand.device()
    await stand.make_claim("c", [device])
    pod = await stand.make_pod("p", {"gpu": "c"})
    await stand.reserve("c", pod)
    async with stand.kubelet():
        await stand.reaches("p", "Running")
    return str(device)


async def test_without_the_api_claims_say_it_and_the_agent_says_so_once(stand, eventually, capsys):
    await stand.tell_node()
    async with stand.agent() as health:
        device = await run_pod(stand)
        stand.group.pod_resources.unlink(missing_ok=True)
        await eventually(
            lambda: "is its folder mounted" in degraded(health).get("pod-resources", "")
        )
        capsys.readouterr()
        await asyncio.sleep(5 * stand.group.usage)
        assert holders(health)[device] == {("default", "p", "main")}
        assert health.ready
        assert "metrics name pods" not in capsys.readouterr().out


async def test_a_kubelet_that_lists_no_claims_is_not_believed(stand, eventually):
    """Its feature gate is off, or it is older than 1.34."""
    answer = pod_resources_pb2.ListPodResourcesResponse(
        pod_resources=[{"name": "p", "namespace": "default", "containers": [{"name": "main"}]}]
    )

    async def without_claims() -> bytes:
        return bytes(answer.SerializeToString())

    await stand.tell_node()
    async with stand.agent() as health:
        device = await run_pod(stand)
        async with lister(stand, without_claims):
            await eventually(lambda: "lists no claim" in degraded(health).get("pod-resources", ""))
            assert holders(health)[device] == {("default", "p", "main")}
            assert health.ready


async def test_a_kubelet_that_hangs_delays_no_scrape(stand, eventually, monkeypatch):
    monkeypatch.setattr(client, "_TIMEOUT_S", 0.3)
    asked = asyncio.Event()

    async def hang() -> bytes:
        asked.set()
        await asyncio.Event().wait()
        return b""

    await stand.tell_node()
    async with lister(stand, hang), stand.agent() as health:
        await eventually(asked.is_set)
        # The page is made while the call hangs; nothing but this task runs meanwhile.
        await eventually(lambda: len(holders(health)) == 4)
        await eventually(lambda: "does not answer" in degraded(health).get("pod-resources", ""))
        assert health.ready


@pytest.mark.parametrize("answer", [b"\xff\xff\xff", b"\x0a\x03\x0a\x01\xff"])
async def test_an_answer_that_can_not_be_read_is_a_sentence(stand, eventually, answer):
    async def garbage() -> bytes:
        return bytes(answer)

    await stand.tell_node()
    async with lister(stand, garbage), stand.agent() as health:
        await eventually(lambda: "can't be read" in degraded(health).get("pod-resources", ""))
        await eventually(lambda: health.ready)


async def test_long_lists_are_read(stand):
    """Sixteen MiB, as the DCGM exporter reads."""
    container = {
        "name": "c",
        "devices": [{"resource_name": "other.example/device", "device_ids": ["d" * 5 * 2**20]}],
        "dynamic_resources": [
            {
                "claim_name": driver,
                "claim_namespace": "n",
                "claim_resources": [{"driver_name": driver}],
            }
            for driver in ("other.example", "tensor-fusion.ai.dra-driver")
        ],
    }
    answer = pod_resources_pb2.ListPodResourcesResponse(
        pod_resources=[{"name": "p", "namespace": "n", "containers": [container]}]
    )

    async def long() -> bytes:
        return bytes(answer.SerializeToString())

    async with lister(stand, long):
        (one,) = await listed_containers(stand.group.pod_resources)
    assert (one.pod, one.container, one.ids) == ("p", "c", {})
    assert one.claims == {("n", "tensor-fusion.ai.dra-driver")}


async def test_a_socket_that_can_not_exist_is_a_sentence(stand):
    path = stand.folder / ("x" * 300) / "kubelet.sock"
    with pytest.raises(PodResourcesUnavailableError, match="DRAY_NODE__POD_RESOURCES_SOCKET"):
        await listed_containers(path)
    follower = ContainerFollower(path, every_s=60.0, must_list_claims=lambda: False)
    task = asyncio.create_task(follower.run())
    await asyncio.sleep(0)
    assert follower.containers is None
    assert "File name too long" in follower.problem
    task.cancel()
