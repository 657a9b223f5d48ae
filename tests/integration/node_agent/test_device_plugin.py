"""Containers of pods without claims get their GPUs through the kubelet's device plugin API."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from dray.api.names import DRA_ENABLED, GPU_IDS, GPU_RESOURCE, GPU_SHARE_RESOURCE, SHAPE
from dray.api.pods import accounting_claim
from dray.kube.ports import CLAIMS, PODS
from dray_node_agent.decisions.device_plugin import IDS_PER_GPU
from dray_node_agent.files.plugin_records import PluginRecords
from dray_node_agent.kubelet import device_plugin
from dray_node_agent.kubelet.generated import device_plugin_pb2 as plugin_api
from dray_node_agent.kubelet.generated import pod_resources_pb2 as pods_api
from dray_node_agent.kubelet.server import method_handlers, serving
from dray_node_agent.plugin_containers import PluginContainers

CONTAINERS = "tensor-fusion.ai-container_"
SHARES = 4 * IDS_PER_GPU[GPU_SHARE_RESOURCE]


@dataclass
class DeviceManager:
    """The kubelet's part: registrations, what it has given to containers, calls of the plugin."""

    stand: Any
    endpoints: dict[str, str] = field(default_factory=dict)
    registrations: int = 0
    given: list[tuple[str, str, str, tuple[str, ...]]] = field(default_factory=list)
    """Pod, container, resource and ids."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["DeviceManager"]:
        """A kubelet that starts: it empties the folder of sockets."""
        folder = self.stand.group.device_plugins_dir
        folder.mkdir(exist_ok=True)
        for path in folder.glob("*.sock"):
            path.unlink()
        self.endpoints.clear()
        registration = await serving(folder / "kubelet.sock", [self._registration()])
        lister = await serving(self.stand.group.pod_resources, [self._lister()])
        try:
            yield self
        finally:
            await registration.stop(0)
            await lister.stop(0)

    def _registration(self) -> Any:
        async def register(request: Any, _: Any) -> Any:
            assert request.version == "v1beta1"
            assert request.options.pre_start_required
            self.endpoints[request.resource_name] = request.endpoint
            self.registrations += 1
            return plugin_api.Empty()

        methods = {"Register": (register, plugin_api.RegisterRequest)}
        return method_handlers("v1beta1.Registration", methods)

    def _lister(self) -> Any:
        async def listed(_: Any, __: Any) -> Any:
            pods = [
                pods_api.PodResources(
                    name=pod,
                    namespace="default",
                    containers=[
                        pods_api.ContainerResources(
                            name=container,
                            devices=[
                                pods_api.ContainerDevices(resource_name=resource, device_ids=ids)
                            ],
                        )
                    ],
                )
                for pod, container, resource, ids in self.given
            ]
            return pods_api.ListPodResourcesResponse(pod_resources=pods)

        methods = {"List": (listed, pods_api.ListPodResourcesRequest)}
        return method_handlers("v1.PodResourcesLister", methods)

    async def registered(self, eventually: Any, *, at_least: int = 2) -> None:
        await eventually(lambda: len(self.endpoints) == 2 and self.registrations >= at_least)

    @asynccontextmanager
    async def _channel(self, resource: str) -> AsyncIterator[Any]:
        path = self.stand.group.device_plugins_dir / self.endpoints[resource]
        options = [("grpc.default_authority", "localhost")]
        async with grpc.aio.insecure_channel(f"unix:{path}", options=options) as channel:
            yield channel

    async def _call(self, resource: str, method: str, request: Any, answer: Any) -> Any:
        async with self._channel(resource) as channel:
            call = channel.unary_unary(
                f"/v1beta1.DevicePlugin/{method}",
                request_serializer=lambda one: one.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            return await call(request, wait_for_ready=True, timeout=30)

    async def admit(self, pod: str, resource: str, *ids: str, container: str = "main") -> str:
        """Give ids to a container; the name of its CDI device."""
        asked = plugin_api.ContainerAllocateRequest(devices_ids=ids)
        request = plugin_api.AllocateRequest(container_requests=[asked])
        answer = await self._call(resource, "Allocate", request, plugin_api.AllocateResponse)
        self.given.append((pod, container, resource, ids))
        (response,) = answer.container_responses
        (device,) = response.cdi_devices
        return str(device.name)

    async def start(self, resource: str, *ids: str) -> str:
        """Announce that a container starts; the error."""
        request = plugin_api.PreStartContainerRequest(devices_ids=ids)
        answer = plugin_api.PreStartContainerResponse
        try:
            await self._call(resource, "PreStartContainer", request, answer)
        except grpc.aio.AioRpcError as error:
            return str(error.details())
        return ""

    async def lists(self, resource: str) -> AsyncIterator[dict[str, str]]:
        """The health of the ids, as often as the plugin says it."""
        async with self._channel(resource) as channel:
            call = channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch",
                request_serializer=lambda one: one.SerializeToString(),
                response_deserializer=plugin_api.ListAndWatchResponse.FromString,
            )
            async for answer in call(plugin_api.Empty(), wait_for_ready=True):
                yield {one.ID: one.health for one in answer.devices}


@pytest.fixture
async def kubelet(stand: Any) -> AsyncIterator[DeviceManager]:
    """A kubelet, on a node whose agent may be a device plugin."""
    stand.device_plugin = True
    await stand.tell_node()
    async with DeviceManager(stand).running() as manager:
        yield manager


async def decided(
    stand: Any, name: str, *devices: str, bound_with: str = "", is_own: bool = True
) -> Any:
    """A pod that dray has bound, with the claim that accounts for it. ``is_own``: whether the pod
    controls it."""
    uuids = ",".join(device.replace("gpu-", "GPU-", 1) for device in devices)
    annotations = {SHAPE: "{}", DRA_ENABLED: "false", GPU_IDS: bound_with or uuids}
    limits = {"limits": {GPU_SHARE_RESOURCE: "1"}}
    pod = await stand.make_pod(name, resources=limits, annotations=annotations)
    claim = accounting_claim(pod["metadata"]["uid"])
    await stand.make_claim(claim, [*devices], owner=pod if is_own else None)
    await stand.reserve(claim, pod)
    return pod


def container_files(stand: Any) -> list[str]:
    return [name for name in stand.cdi_files() if name.startswith(CONTAINERS)]


async def test_a_container_gets_the_devices_and_variables_of_its_pods_claim(
    stand, kubelet, eventually
):
    async with stand.agent():
        await kubelet.registered(eventually)
        devices = [await stand.device(0), await stand.device(1)]
        pod = await decided(stand, "p", *devices)
        name = await kubelet.admit("p", GPU_SHARE_RESOURCE, "gpu-share-7")
        assert container_files(stand) == []
        assert await kubelet.start(GPU_SHARE_RESOURCE, "gpu-share-7") == ""

        (file,) = container_files(stand)
        spec = json.loads((stand.group.cdi_dir / file).read_text())
        (device,) = spec["devices"]
        assert f"{spec['kind']}={device['name']}" == name
        env = dict(one.split("=", 1) for one in device["containerEdits"]["env"])
        assert env["NVIDIA_VISIBLE_DEVICES"] == pod["metadata"]["annotations"][GPU_IDS]
        assert env["TENSOR_FUSION_TFLOPS_REQUEST"] == "100"
        assert len(stand.checkpoint()) == 1

        patch = {"status": {"phase": "Succeeded"}}
        await stand.kube.patch(PODS, "p", patch, "default", subresource="status")
        await eventually(lambda: not stand.checkpoint() and stand.cdi_files() == [])


async def test_a_force_deleted_pod_is_released_once_its_claim_is_gone(stand, kubelet, eventually):
    async with stand.agent():
        await kubelet.registered(eventually)
        pod = await decided(stand, "p", await stand.device())
        await kubelet.admit("p", GPU_SHARE_RESOURCE, "gpu-share-0")
        assert await kubelet.start(GPU_SHARE_RESOURCE, "gpu-share-0") == ""
        await stand.kube.delete(PODS, "p", "default", grace_period_s=0)
        await stand.kube.delete(CLAIMS, accounting_claim(pod["metadata"]["uid"]), "default")
        await eventually(lambda: not stand.checkpoint() and stand.cdi_files() == [])


async def test_an_agent_that_was_killed_after_allocate_starts_the_container(
    stand, kubelet, eventually
):
    async with stand.agent():
        await kubelet.registered(eventually)
        await decided(stand, "p", await stand.device())
        name = await kubelet.admit("p", GPU_SHARE_RESOURCE, "gpu-share-0")
    async with stand.agent():
        await kubelet.registered(eventually, at_least=4)
        assert await kubelet.start(GPU_SHARE_RESOURCE, "gpu-share-0") == ""
        (file,) = container_files(stand)
        assert name.rpartition("=")[2] in file


async def test_containers_that_take_turns_have_one_cdi_device(stand, kubelet, eventually):
    async with stand.agent():
        await kubelet.registered(eventually)
        await decided(stand, "p", await stand.device())
        first = await kubelet.admit("p", GPU_SHARE_RESOURCE, "gpu-share-0", container="init")
        assert await kubelet.admit("p", GPU_SHARE_RESOURCE, "gpu-share-0") == first
        assert await kubelet.start(GPU_SHARE_RESOURCE, "gpu-share-0") == ""
        kubelet.given.clear()
        await decided(stand, "next", await stand.device())
        assert await kubelet.admit("next", GPU_SHARE_RESOURCE, "gpu-share-0") != first


async def test_the_name_of_a_cdi_device_is_used_for_one_pod_also_if_the_agent_is_killed(
    stand, kubelet, eventually, monkeypatch
):
    """Container runtimes cache what a name stands for."""

    def killed(*_):
        raise OSError("killed")

    async with stand.agent():
        await kubelet.registered(eventually)
        await decided(stand, "p", await stand.device(0))
        name = await kubelet.admit("p", GPU_SHARE_RESOURCE, "gpu-share-0")
        with monkeypatch.context() as patched:
            patched.setattr(PluginRecords, "assign", killed)
            assert await kubelet.start(GPU_SHARE_RESOURCE, "gpu-share-0") == "killed"
        is_written = bool(container_files(stand))
        kubelet.given.clear()
        await decided(stand, "next", await stand.device(1))
        is_used_again = await kubelet.admit("next", GPU_SHARE_RESOURCE, "gpu-share-0") == name
        assert not (is_written and is_used_again)


async def test_a_pod_that_dray_did_not_decide_about_starts_no_container(stand, kubelet, eventually):
    async with stand.agent():
        await kubelet.registered(eventually)
        await stand.make_pod("p", resources={"limits": {GPU_RESOURCE: "1"}})
        await kubelet.admit("p", GPU_RESOURCE, "gpu-0")
        assert "pod default/p asks for nvidia.com/gpu, and dray gave it no GPUs" in (
            await kubelet.start(GPU_RESOURCE, "gpu-0")
        )
        assert stand.cdi_files() == []


async def test_a_pod_that_was_bound_with_other_gpus_starts_no_container(stand, kubelet, eventually):
    async with stand.agent():
        await kubelet.registered(eventually)
        await decided(stand, "p", await stand.device(), bound_with="GPU-of-another-node")
        await kubelet.admit("p", GPU_SHARE_RESOURCE, "gpu-share-0")
        error = await kubelet.start(GPU_SHARE_RESOURCE, "gpu-share-0")
        assert "was bound with GPUs GPU-of-another-node" in error
        assert container_files(stand) == []


async def test_a_claim_that_somebody_made_before_dray_starts_no_container(
    stand, kubelet, eventually
):
    async with stand.agent():
        await kubelet.registered(eventually)
        await decided(stand, "p", await stand.device(0), is_own=False)
        await kubelet.admit("p", GPU_SHARE_RESOURCE, "gpu-share-0")
        error = await kubelet.start(GPU_SHARE_RESOURCE, "gpu-share-0")
        assert "that pod does not control it: somebody else made it. Delete it" in error
        assert not container_files(stand)


async def test_a_container_with_more_cards_than_its_claim_does_not_start(
    stand, kubelet, eventually
):
    async with stand.agent():
        await kubelet.registered(eventually)
        await decided(stand, "p", await stand.device())
        await kubelet.admit("p", GPU_RESOURCE, "gpu-0", "gpu-1")
        error = await kubelet.start(GPU_RESOURCE, "gpu-0", "gpu-1")
        assert "2 of nvidia.com/gpu, but its claim" in error


async def test_ids_of_no_container_or_of_two_pods_start_nothing(stand, kubelet, eventually):
    async with stand.agent():
        await kubelet.registered(eventually)
        await kubelet.admit("p", GPU_RESOURCE, "gpu-0")
        await kubelet.admit("q", GPU_RESOURCE, "gpu-0")
        error = await kubelet.start(GPU_RESOURCE, "gpu-0")
        assert "belong to default/p and default/q" in error
        kubelet.given.clear()
        assert "belong to no container" in await kubelet.start(GPU_RESOURCE, "gpu-0")


async def test_an_unhealthy_gpu_makes_an_id_unhealthy(stand, kubelet, eventually):
    async with stand.agent():
        await kubelet.registered(eventually)
        stand.group.state_dir.joinpath("unhealthy").write_text("1 xid-79\n")
        unhealthy = {GPU_RESOURCE: (4, 1), GPU_SHARE_RESOURCE: (SHARES, SHARES // 4)}
        for resource, (ids, failed) in unhealthy.items():
            async with asyncio.timeout(30):
                async for health in kubelet.lists(resource):
                    assert len(health) == ids
                    if list(health.values()).count("Unhealthy") == failed:
                        break


async def test_an_unchanged_list_is_not_sent_again(stand, kubelet, eventually, monkeypatch):
    """The kubelet writes a checkpoint for each list."""
    monkeypatch.setattr(device_plugin, "_LOOK_AGAIN_S", 0.01)
    looks, devices = list[str](), PluginContainers.devices

    async def counting(self, resource):
        looks.append(resource)
        return await devices(self, resource)

    monkeypatch.setattr(PluginContainers, "devices", counting)
    async with stand.agent():
        await kubelet.registered(eventually)
        lists = kubelet.lists(GPU_RESOURCE)
        assert set((await anext(lists)).values()) == {"Healthy"}
        await eventually(lambda: looks.count(GPU_RESOURCE) > 5)
        stand.group.state_dir.joinpath("unhealthy").write_text("1 xid-79\n")
        assert list((await anext(lists)).values()).count("Unhealthy") == 1
        await lists.aclose()


async def test_a_kubelet_that_starts_again_gets_another_registration(stand, eventually):
    stand.device_plugin = True
    await stand.tell_node()
    manager = DeviceManager(stand)
    async with stand.agent():
        for number in range(1, 3):
            async with manager.running():
                await manager.registered(eventually, at_least=2 * number)


async def test_nodes_of_kube_scheduler_offer_no_resource(stand, kubelet, eventually):
    async with stand.agent():
        await kubelet.registered(eventually)
        await stand.tell_node(owner="kube-scheduler")
        folder = stand.group.device_plugins_dir
        await eventually(lambda: [one.name for one in folder.glob("*.sock")] == ["kubelet.sock"])


async def test_of_two_agents_one_serves_and_the_other_takes_its_containers_over(
    stand, kubelet, eventually
):
    async with AsyncExitStack() as second, AsyncExitStack() as first:
        await first.enter_async_context(stand.agent())
        await kubelet.registered(eventually)
        health = await second.enter_async_context(stand.agent())
        # Until it is, a rolling update does not end the first one.
        await eventually(lambda: health.ready)
        await decided(stand, "p", await stand.device())
        await kubelet.admit("p", GPU_SHARE_RESOURCE, "gpu-share-0")
        assert await kubelet.start(GPU_SHARE_RESOURCE, "gpu-share-0") == ""
        files = stand.cdi_files()
        assert kubelet.registrations == 2

        await first.aclose()
        await kubelet.registered(eventually, at_least=4)
        assert await kubelet.start(GPU_SHARE_RESOURCE, "gpu-share-0") == ""
        assert stand.cdi_files() == files
        patch = {"status": {"phase": "Succeeded"}}
        await stand.kube.patch(PODS, "p", patch, "default", subresource="status")
        await eventually(lambda: not stand.checkpoint() and stand.cdi_files() == [])


async def test_the_successor_of_a_pod_of_the_same_name_gets_its_own_gpus(
    stand, kubelet, eventually
):
    """The agent's watch is behind, and the first pod's claim is there until it is released."""
    async with stand.agent():
        await kubelet.registered(eventually)
        await decided(stand, "p", await stand.device(0))
        await kubelet.admit("p", GPU_SHARE_RESOURCE, "gpu-share-0")
        assert await kubelet.start(GPU_SHARE_RESOURCE, "gpu-share-0") == ""
        stand.kubes[-1].hold_watches()
        await stand.kube.delete(PODS, "p", "default", grace_period_s=0)
        kubelet.given.clear()
        pod = await decided(stand, "p", await stand.device(1))
        name = await kubelet.admit("p", GPU_SHARE_RESOURCE, "gpu-share-1")
        assert await kubelet.start(GPU_SHARE_RESOURCE, "gpu-share-1") == ""
        file = f"{CONTAINERS}{name.rpartition('=')[2]}.json"
        text = (stand.group.cdi_dir / file).read_text()
        assert f"NVIDIA_VISIBLE_DEVICES={pod['metadata']['annotations'][GPU_IDS]}" in text
        stand.kubes[-1].release_watches()
