"""Registration and calls of DRA plugins.

During a rolling update, a driver may have several plugins, each with its own sockets. A socket that
was created again under the same name is a new registration.
"""

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import structlog

from dray.runtime.backoff import Backoff
from dray_node_agent.kubelet.generated import (
    dra_health_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    plugin_registration_pb2,
)
from dray_sandbox.kubelet.claims import ClaimInfo, NotStartedError, PluginDevice
from dray_sandbox.kubelet.device_health import DeviceHealthCache, DeviceKey, health_name
from dray_sandbox.kubelet.timings import KubeletTimings

_PLUGIN_TYPE = "DRAPlugin"
_REGISTRATION_TIMEOUT_S = 5.0
_CALL_TIMEOUT_S = 45.0
"""The kubelet's default timeout of calls to plugins."""
_CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # else a new plugin inherits the old one's backoff
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
_SERVICES: dict[str, tuple[str, ModuleType]] = {
    "v1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra_v1_pb2),
    "v1beta1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", dra_v1beta1_pb2),
}
"""In order of preference."""
_HEALTH_SERVICE = "v1alpha1.DRAResourceHealth"
"""Kubelet 1.36 calls this version, whether the plugin names it or not."""

Identity = tuple[int, int]
"""Inode and mtime of a socket."""


class Plugin:
    """A registered plugin. Calls raise NotStartedError with the plugin's error."""

    def __init__(self, driver: str, endpoint: str, version: str) -> None:
        self.driver = driver
        self.endpoint = endpoint
        self.version = version
        self.connected = False
        self.is_closed = False
        self._service, self._messages = _SERVICES[version]
        self._channel = grpc.aio.insecure_channel(f"unix:{endpoint}", options=_CHANNEL_OPTIONS)

    async def prepare(self, claims: Sequence[ClaimInfo]) -> dict[str, tuple[PluginDevice, ...]]:
        """NodePrepareResources of a batch; devices by claim uid."""
        answer = await self._call("NodePrepareResources", claims)
        self._check_results("NodePrepareResources", claims, answer)
        return {
            uid: tuple(self._device(device) for device in one.devices)
            for uid, one in answer.claims.items()
        }

    async def unprepare(self, claims: Sequence[ClaimInfo]) -> None:
        """NodeUnprepareResources of a batch."""
        answer = await self._call("NodeUnprepareResources", claims)
        self._check_results("NodeUnprepareResources", claims, answer)

    async def connections(self) -> AsyncIterator[bool]:
        """Yields at each change whether the plugin is connected. Reconnects."""
        connected: bool | None = None
        while True:
            state = self._channel.get_state(try_to_connect=True)
            if state is not grpc.ChannelConnectivity.CONNECTING:
                now = state is grpc.ChannelConnectivity.READY
                if now is not connected:
                    connected = self.connected = now
                    yield now
            await self._channel.wait_for_state_change(state)

    async def health(self) -> AsyncIterator[list[tuple[DeviceKey, str, str, float]]]:
        """Yields every list of NodeWatchResources: device, health, message and time-out.

        Raises NotStartedError when the stream fails.
        """
        messages: Any = dra_health_pb2
        watch = self._channel.unary_stream(
            f"/{_HEALTH_SERVICE}/NodeWatchResources",
            request_serializer=messages.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=messages.NodeWatchResourcesResponse.FromString,
        )
        try:
            async for answer in watch(messages.NodeWatchResourcesRequest()):
                yield [self._health_of(one) for one in answer.devices]
        except grpc.aio.AioRpcError as error:
            raise NotStartedError(f"WatchResources of {self.driver}: {error.details()}") from error
        except grpc.aio.UsageError as error:  # closed meanwhile
            raise NotStartedError(f"WatchResources of {self.driver}: {error}") from error

    def _device(self, device: Any) -> PluginDevice:
        return PluginDevice(
            self.driver,
            device.pool_name,
            device.device_name,
            tuple(device.request_names),
            tuple(device.cdi_device_ids),
            getattr(device, "share_id", ""),
        )

    def _health_of(self, one: Any) -> tuple[DeviceKey, str, str, float]:
        key = (self.driver, one.device.pool_name, one.device.device_name)
        timeout_s = float(one.health_check_timeout_seconds)
        return key, health_name(one.health), one.message[:1024], timeout_s

    async def close(self) -> None:
        """Close the connection."""
        self.is_closed = True
        await self._channel.close(None)

    async def _call(self, method: str, claims: Sequence[ClaimInfo]) -> Any:
        messages: Any = self._messages
        request_type = getattr(messages, f"{method}Request")
        call = self._channel.unary_unary(
            f"/{self._service}/{method}",
            request_serializer=request_type.SerializeToString,
            response_deserializer=getattr(messages, f"{method}Response").FromString,
        )
        refs = [messages.Claim(namespace=c.namespace, uid=c.uid, name=c.name) for c in claims]
        try:
            return await call(request_type(claims=refs), timeout=_CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise NotStartedError(f"{method} of {self.driver}: {error.details()}") from error
        except grpc.aio.UsageError as error:
            raise NotStartedError(f"{method} of {self.driver}: {error}") from error
        except asyncio.CancelledError:
            # Closing the channel cancels its calls, not the tasks that wait for them.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise NotStartedError(f"{method} of {self.driver}: the plugin went away") from None

    def _check_results(self, method: str, claims: Sequence[ClaimInfo], answer: Any) -> None:
        """Refuse an answer that lacks a claim or has an unknown one, as the kubelet does."""
        names = {claim.uid: claim.name for claim in claims}
        for uid, one in answer.claims.items():
            if uid not in names:
                raise NotStartedError(f"{method} returned a result for unknown claim UID {uid}")
            if one.error:
                raise NotStartedError(
                    f"{method} failed for ResourceClaim {names[uid]}: {one.error}"
                )
        if skipped := len(names) - len(answer.claims):
            raise NotStartedError(f"{method} skipped {skipped} ResourceClaims")


class PluginRegistry:
    """The plugins that registered through sockets in a registry folder.

    ``on_usable`` is called with a driver that has a connected plugin again, ``on_away`` with a
    driver that has none left, ``on_health`` with devices whose health changed.
    """

    def __init__(
        self,
        folder: Path,
        timings: KubeletTimings | None = None,
        *,
        on_usable: Callable[[str], None] = lambda _: None,
        on_away: Callable[[str], None] = lambda _: None,
        on_health: Callable[[Sequence[DeviceKey]], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._timings = timings or KubeletTimings()
        self._on_usable = on_usable
        self._on_away = on_away
        self._on_health = on_health
        self._plugins: dict[Path, Plugin] = {}
        """In the order of their registration."""
        self._known: dict[Path, Identity] = {}
        self._tasks: dict[Path, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._health = DeviceHealthCache(self._timings.health_timeout_s)

    def plugin(self, driver: str) -> Plugin:
        """The driver's plugin that registered last. Connected plugins take precedence.

        Raises NotStartedError if there is none.
        """
        plugins = [one for one in self._plugins.values() if one.driver == driver]
        if not plugins:
            raise NotStartedError(f"DRA driver {driver} is not registered")
        return next((one for one in reversed(plugins) if one.connected), plugins[-1])

    def health(self, device: DeviceKey) -> tuple[str, str]:
        """Health and message of a device."""
        return self._health.health(device, now_s=time.monotonic())

    async def registered(self, driver: str) -> Plugin:
        """Wait until a driver has registered."""
        while True:
            self._changed.clear()
            try:
                return self.plugin(driver)
            except NotStartedError:
                await self._changed.wait()

    async def run(self) -> None:
        """Loop: scan for sockets."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            while True:
                await self._scan()
                await asyncio.sleep(self._timings.registration_s)
        finally:
            for task in self._tasks.values():
                task.cancel()
            for plugin in self._plugins.values():
                await plugin.close()
            self._plugins.clear()

    async def _scan(self) -> None:
        present = dict(_sockets(self._folder))
        for path in [one for one in self._known if self._known[one] != present.get(one)]:
            await self._remove(path)
        for path, identity in present.items():
            if path not in self._known:
                self._known[path] = identity
                self._tasks[path] = asyncio.create_task(self._watch_plugin(path))

    async def _remove(self, path: Path) -> None:
        del self._known[path]
        if task := self._tasks.pop(path, None):
            task.cancel()
        if plugin := self._plugins.pop(path, None):
            await plugin.close()
            self._note_usable(plugin.driver)
            structlog.get_logger().info("plugin gone", driver=plugin.driver)

    async def _watch_plugin(self, path: Path) -> None:
        """Register the plugin of a socket, then watch its connection and its devices' health."""
        plugin = await self._registered(path)
        self._plugins[path] = plugin
        self._changed.set()
        structlog.get_logger().info(
            "plugin registered", driver=plugin.driver, service=plugin.version
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_connection(plugin))
            group.create_task(self._watch_health(plugin))

    async def _watch_connection(self, plugin: Plugin) -> None:
        async for _ in plugin.connections():
            self._note_usable(plugin.driver)

    async def _watch_health(self, plugin: Plugin) -> None:
        while not plugin.is_closed:  # gRPC may take the task's cancellation for the call's
            try:
                async for reported in plugin.health():
                    changed = self._health.update(reported, now_s=time.monotonic())
                    if changed:
                        self._on_health(changed)
            except NotStartedError as error:
                structlog.get_logger().error(
                    "Error receiving from WatchResources stream", error=str(error)
                )
            self._health.forget(plugin.driver)
            await asyncio.sleep(self._timings.health_retry_s)

    def _note_usable(self, driver: str) -> None:
        usable = any(one.connected for one in self._plugins.values() if one.driver == driver)
        (self._on_usable if usable else self._on_away)(driver)

    async def _registered(self, path: Path) -> Plugin:
        """Register the plugin of a socket, with retries."""
        backoff = Backoff(0.5, 122.0)
        while True:
            try:
                return await register(path)
            except NotStartedError as error:
                structlog.get_logger().info("plugin not registered", error=str(error))
                await asyncio.sleep(max(backoff.next_s(), self._timings.registration_s))


async def register(path: Path) -> Plugin:
    """Read the plugin's info from a registration socket, and notify it of the registration.

    Raises:
        NotStartedError: no plugin answers, or it can't be used.
    """
    messages: Any = plugin_registration_pb2
    async with grpc.aio.insecure_channel(f"unix:{path}", options=_CHANNEL_OPTIONS) as channel:
        get_info = channel.unary_unary(
            "/pluginregistration.Registration/GetInfo",
            request_serializer=messages.InfoRequest.SerializeToString,
            response_deserializer=messages.PluginInfo.FromString,
        )
        notify = channel.unary_unary(
            "/pluginregistration.Registration/NotifyRegistrationStatus",
            request_serializer=messages.RegistrationStatus.SerializeToString,
            response_deserializer=messages.RegistrationStatusResponse.FromString,
        )
        try:
            # As the kubelet dials: a busy plugin may need several attempts to connect.
            info = await get_info(
                messages.InfoRequest(), timeout=_REGISTRATION_TIMEOUT_S, wait_for_ready=True
            )
            problem, version = _check_info(info)
            status = messages.RegistrationStatus(plugin_registered=not problem, error=problem)
            await notify(status, timeout=_REGISTRATION_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise NotStartedError(f"registration socket {path}: {error.details()}") from error
    if problem:
        raise NotStartedError(f"registration socket {path}: {problem}")
    return Plugin(info.name, info.endpoint or str(path), version)


def _check_info(info: Any) -> tuple[str, str]:
    """Why the plugin can't be used (else empty), and the service version to call."""
    if info.type != _PLUGIN_TYPE:
        return f"no handler registered for plugin type: {info.type}", ""
    if not info.name:
        return "DRA plugin name is empty", ""
    for version in _SERVICES:
        if version in info.supported_versions:
            return "", version
    return f"none of {list(info.supported_versions)} is supported: want {list(_SERVICES)}", ""


def _sockets(folder: Path | str) -> Iterator[tuple[Path, Identity]]:
    """Sockets below a folder, sorted by name. Does not use ``Path.rglob``, because the folders of
    thousands of nodes are read each second."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
        except (FileNotFoundError, PermissionError):
            continue
        if stat.S_ISDIR(found.st_mode):
            yield from _sockets(entry.path)
        elif stat.S_ISSOCK(found.st_mode) and not entry.name.startswith("."):
            yield Path(entry.path), (found.st_ino, found.st_mtime_ns)
