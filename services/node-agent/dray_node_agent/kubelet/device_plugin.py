"""The kubelet's device plugin API, v1beta1, and its pod resources API, v1.

One socket per resource. A kubelet that restarts empties the folder of sockets: the plugin then
serves on a new one and registers again.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import structlog

from dray.api.errors import DrayError
from dray.runtime.backoff import Backoff
from dray_node_agent.decisions.device_plugin import IDS_PER_GPU, ContainerDevices, DeviceSlot
from dray_node_agent.kubelet.generated import device_plugin_pb2, pod_resources_pb2
from dray_node_agent.kubelet.server import SocketError, method_handlers, serving

KUBELET_SOCKET: Final = "kubelet.sock"
"""In the folder of device plugins."""
VERSION: Final = "v1beta1"
_LOOK_EVERY_S: Final = 0.5
_REPEAT_S: Final = 5.0
"""How often the kubelet gets an unchanged list."""
_CALL_TIMEOUT_S: Final = 10.0
_HEALTH: Final = {True: "Healthy", False: "Unhealthy"}


class PluginBackend(Protocol):
    """What the plugin serves."""

    @property
    def is_offered(self) -> bool:
        """Whether there is anything to serve."""

    async def devices(self, resource: str) -> Sequence[DeviceSlot]:
        """The ids of a resource now."""

    async def changed(self) -> None:
        """Wait for the next change of any device's health."""

    async def allocate(self, ids: Collection[str]) -> str:
        """The CDI device of a container."""

    async def start(self, resource: str, ids: Collection[str]) -> None:
        """Write the CDI device of a container that is about to start."""


class DevicePlugin:
    """Serves ``backend`` to the kubelet with the sockets in ``folder``; ``instance`` tells this
    process from others."""

    def __init__(self, backend: PluginBackend, folder: Path, instance: str) -> None:
        self._backend = backend
        self._folder = folder
        self._instance = instance
        self._log = structlog.get_logger()
        self.problem = "the kubelet has not registered the device plugin yet"
        """Empty once it has."""

    async def run(self) -> None:
        """Loop: serve all resources."""
        async with asyncio.TaskGroup() as group:
            for resource in IDS_PER_GPU:
                group.create_task(self._run(resource), name=resource)

    async def _run(self, resource: str) -> None:
        backoff = Backoff(0.1, 5.0)
        while True:
            try:
                await self._serve(resource)
                backoff.reset()
            except (grpc.aio.AioRpcError, SocketError, OSError) as error:
                why = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                self.problem = f"resource {resource} is not registered with the kubelet: {why}"
                self._log.warning("device plugin not registered", resource=resource, error=why)
            await backoff.pause()

    async def _serve(self, resource: str) -> None:
        """Serve until the kubelet restarts, or the node's GPUs are not dray's any more."""
        while not self._backend.is_offered:
            self.problem = ""
            await asyncio.sleep(_LOOK_EVERY_S)
        path = self._folder / f"dray-{resource.rpartition('/')[2]}-{self._instance}.sock"
        path.unlink(missing_ok=True)
        server = await serving(path, [self._handlers(resource)])
        try:
            kubelet = (self._folder / KUBELET_SOCKET).stat().st_ino
            await self._register(resource, path.name)
            self.problem = ""
            self._log.info("the kubelet registered the device plugin", resource=resource)
            await self._until_changed(path, kubelet)
        finally:
            await server.stop(0.0)  # streams would last for any grace
            path.unlink(missing_ok=True)

    async def _until_changed(self, path: Path, kubelet: int) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if not (self._backend.is_offered and self._is_current(path, kubelet)):
                return

    def _is_current(self, path: Path, kubelet: int) -> bool:
        """Whether both sockets are the ones that were registered."""
        try:
            return path.exists() and (self._folder / KUBELET_SOCKET).stat().st_ino == kubelet
        except FileNotFoundError:
            return False

    async def _register(self, resource: str, endpoint: str) -> None:
        request = device_plugin_pb2.RegisterRequest(
            version=VERSION,
            endpoint=endpoint,
            resource_name=resource,
            options=device_plugin_pb2.DevicePluginOptions(pre_start_required=True),
        )
        async with _calling(self._folder / KUBELET_SOCKET) as channel:
            call = channel.unary_unary(
                f"/{VERSION}.Registration/Register",
                request_serializer=lambda one: one.SerializeToString(),
                response_deserializer=device_plugin_pb2.Empty.FromString,
            )
            await call(request, timeout=_CALL_TIMEOUT_S)

    def _handlers(self, resource: str) -> Any:
        messages = device_plugin_pb2

        async def options(_: Any, __: Any) -> Any:
            return messages.DevicePluginOptions(pre_start_required=True)

        async def list_and_watch(_: Any, __: Any) -> AsyncIterator[Any]:
            while True:
                changed = asyncio.ensure_future(self._backend.changed())
                try:
                    devices = [
                        messages.Device(ID=one.id, health=_HEALTH[one.is_healthy])
                        for one in await self._backend.devices(resource)
                    ]
                    yield messages.ListAndWatchResponse(devices=devices)
                    await asyncio.wait([changed], timeout=_REPEAT_S)
                finally:
                    changed.cancel()

        async def allocate(request: Any, _: Any) -> Any:
            names = [
                await self._backend.allocate(one.devices_ids) for one in request.container_requests
            ]
            return messages.AllocateResponse(
                container_responses=[
                    messages.ContainerAllocateResponse(cdi_devices=[messages.CDIDevice(name=name)])
                    for name in names
                ]
            )

        async def start(request: Any, context: Any) -> Any:
            try:
                await self._backend.start(resource, request.devices_ids)
            except (DrayError, OSError) as error:
                self._log.warning("container not started", resource=resource, error=str(error))
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            return messages.PreStartContainerResponse()

        return method_handlers(
            f"{VERSION}.DevicePlugin",
            {
                "GetDevicePluginOptions": (options, messages.Empty),
                "Allocate": (allocate, messages.AllocateRequest),
                "PreStartContainer": (start, messages.PreStartContainerRequest),
            },
            {"ListAndWatch": (list_and_watch, messages.Empty)},
        )


class PodResourcesUnavailableError(DrayError):
    """The kubelet does not say which devices its containers have."""


async def given_devices(socket: Path) -> list[ContainerDevices]:
    """What the kubelet has given to the containers of its active pods. Raises
    PodResourcesUnavailableError."""
    try:
        async with _calling(socket) as channel:
            call = channel.unary_unary(
                "/v1.PodResourcesLister/List",
                request_serializer=lambda one: one.SerializeToString(),
                response_deserializer=pod_resources_pb2.ListPodResourcesResponse.FromString,
            )
            answer = await call(
                pod_resources_pb2.ListPodResourcesRequest(), timeout=_CALL_TIMEOUT_S
            )
    except grpc.aio.AioRpcError as error:
        raise PodResourcesUnavailableError(
            f"the kubelet's pod resources API at {socket} does not answer: {error.details()}; is "
            "its folder mounted (DRAY_NODE__POD_RESOURCES_SOCKET)?"
        ) from error
    return [
        ContainerDevices(
            pod.namespace, pod.name, container.name, one.resource_name, tuple(one.device_ids)
        )
        for pod in answer.pod_resources
        for container in pod.containers
        for one in container.devices
    ]


@asynccontextmanager
async def _calling(socket: Path) -> AsyncIterator[Any]:
    # The kubelet's server checks the authority, which is the path otherwise.
    options = [("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        yield channel
