"""The kubelet's device plugin API, v1beta1.

There is one socket per resource. A kubelet that restarts empties the folder of sockets; the plugin
then serves on a new socket and registers again.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import structlog

from dray.api.errors import DrayError
from dray.runtime.backoff import Backoff
from dray_node_agent.decisions.device_plugin import IDS_PER_GPU, DeviceSlot
from dray_node_agent.kubelet.client import KubeletCallError, call
from dray_node_agent.kubelet.generated import device_plugin_pb2
from dray_node_agent.kubelet.server import SocketError, method_handlers, serving

_KUBELET_SOCKET: Final = "kubelet.sock"
"""In the folder of device plugins."""
VERSION: Final = "v1beta1"
_LOOK_EVERY_S: Final = 0.5
_LOOK_AGAIN_S: Final = 5.0
"""How often the list is made again if no health changed: the containers that use an unhealthy GPU
determine which ids stand for it."""
_UNREGISTERED: Final = "the kubelet has not registered the device plugin yet"
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
    """Serves ``backend`` to the kubelet with the sockets in ``folder``; ``instance`` distinguishes
    this process from others."""

    def __init__(self, backend: PluginBackend, folder: Path, instance: str) -> None:
        self._backend = backend
        self._folder = folder
        self._instance = instance
        self._log = structlog.get_logger()
        self._problems: dict[str, str] = {}
        """By resource, while this agent serves; empty: it is registered, or not offered."""

    @property
    def problem(self) -> str:
        """Why the kubelet has not registered a resource. Empty: it has registered all, or another
        agent of the node serves them; then this agent is ready, so that a rolling update ends the
        other one."""
        return next(filter(None, self._problems.values()), "")

    async def run(self) -> None:
        """Loop: serve all resources."""
        self._problems = dict.fromkeys(IDS_PER_GPU, _UNREGISTERED)
        async with asyncio.TaskGroup() as group:
            for resource in IDS_PER_GPU:
                group.create_task(self._run(resource), name=resource)

    async def _run(self, resource: str) -> None:
        backoff = Backoff(0.1, 5.0)
        while True:
            try:
                await self._serve(resource)
                backoff.reset()
            except (KubeletCallError, SocketError, OSError) as error:
                problem = f"resource {resource} is not registered with the kubelet: {error}"
                self._problems[resource] = problem
                self._log.warning(
                    "device plugin not registered", resource=resource, error=str(error)
                )
            await backoff.pause()

    async def _serve(self, resource: str) -> None:
        """Serve until the kubelet restarts, or dray no longer allocates the node's GPUs."""
        while not self._backend.is_offered:
            self._problems[resource] = ""
            await asyncio.sleep(_LOOK_EVERY_S)
        path = self._folder / f"dray-{resource.rpartition('/')[2]}-{self._instance}.sock"
        path.unlink(missing_ok=True)
        server = await serving(path, [self._handlers(resource)])
        try:
            kubelet = (self._folder / _KUBELET_SOCKET).stat().st_ino
            await self._register(resource, path.name)
            self._problems[resource] = ""
            self._log.info("the kubelet registered the device plugin", resource=resource)
            await self._until_changed(path, kubelet)
        finally:
            await server.stop(0.0)  # streams would use up any grace period
            path.unlink(missing_ok=True)

    async def _until_changed(self, path: Path, kubelet: int) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if not (self._backend.is_offered and self._is_current(path, kubelet)):
                return

    def _is_current(self, path: Path, kubelet: int) -> bool:
        """Whether both sockets are the ones that were registered."""
        try:
            return path.exists() and (self._folder / _KUBELET_SOCKET).stat().st_ino == kubelet
        except FileNotFoundError:
            return False

    async def _register(self, resource: str, endpoint: str) -> None:
        request = device_plugin_pb2.RegisterRequest(
            version=VERSION,
            endpoint=endpoint,
            resource_name=resource,
            options=device_plugin_pb2.DevicePluginOptions(pre_start_required=True),
        )
        method = f"/{VERSION}.Registration/Register"
        await call(self._folder / _KUBELET_SOCKET, method, request, device_plugin_pb2.Empty)

    def _handlers(self, resource: str) -> Any:
        messages = device_plugin_pb2

        async def options(_: Any, __: Any) -> Any:
            return messages.DevicePluginOptions(pre_start_required=True)

        async def list_and_watch(_: Any, __: Any) -> AsyncIterator[Any]:
            known: Sequence[DeviceSlot] | None = None
            while True:
                changed = asyncio.ensure_future(self._backend.changed())
                try:
                    slots = await self._backend.devices(resource)
                    if slots != known:  # the kubelet writes a checkpoint for each list
                        known = slots
                        devices = [
                            messages.Device(ID=one.id, health=_HEALTH[one.is_healthy])
                            for one in slots
                        ]
                        yield messages.ListAndWatchResponse(devices=devices)
                    await asyncio.wait([changed], timeout=_LOOK_AGAIN_S)
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
