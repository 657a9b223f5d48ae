"""DRA plugins as a kubelet finds and calls them: the only module of the stand-in with grpc.

The registry folder is looked at often instead of watched by inotify; a socket that was made
anew under the same name is a new registration.
"""

import asyncio
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import structlog

from dray.runtime.backoff import Backoff
from dray_node_agent.kubelet.generated import (
    dra_v1_pb2,
    dra_v1beta1_pb2,
    plugin_registration_pb2,
)
from dray_sandbox.kubelet.claims import HeldClaim, NotStartedError

PLUGIN_TYPE = "DRAPlugin"
LOOK_EVERY_S = 0.1
REGISTRATION_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 45.0
"""The kubelet's default for calls to plugins."""
CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # or a new plugin inherits the old one's back-off
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
SERVICES: dict[str, tuple[str, ModuleType]] = {
    "v1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra_v1_pb2),
    "v1beta1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", dra_v1beta1_pb2),
}
"""In the order of preference."""

Identity = tuple[int, int]
"""inode and mtime of a socket."""


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """What a plugin answered for one device."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str


class Plugin:
    """A registered plugin. Calls raise NotStartedError with what it answered."""

    def __init__(self, driver: str, endpoint: str, version: str) -> None:
        self.driver = driver
        self.endpoint = endpoint
        self.version = version
        self._service, self._messages = SERVICES[version]
        self._channel = grpc.aio.insecure_channel(f"unix:{endpoint}", options=CHANNEL_OPTIONS)

    async def prepare(self, claims: Sequence[HeldClaim]) -> dict[str, tuple[PluginDevice, ...]]:
        """NodePrepareResources of a batch; devices by claim uid."""
        answer = await self._call("NodePrepareResources", claims)
        self._complete("NodePrepareResources", claims, answer)
        return {uid: tuple(map(_device, one.devices)) for uid, one in answer.claims.items()}

    async def unprepare(self, claims: Sequence[HeldClaim]) -> None:
        """NodeUnprepareResources of a batch."""
        answer = await self._call("NodeUnprepareResources", claims)
        self._complete("NodeUnprepareResources", claims, answer)

    async def connections(self) -> AsyncIterator[bool]:
        """Whether the plugin is there, each time that changes; keeps the connection up."""
        connected: bool | None = None
        while True:
            state = self._channel.get_state(try_to_connect=True)
            if state is not grpc.ChannelConnectivity.CONNECTING:
                now = state is grpc.ChannelConnectivity.READY
                if now is not connected:
                    connected = now
                    yield now
            await self._channel.wait_for_state_change(state)

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close(None)

    async def _call(self, method: str, claims: Sequence[HeldClaim]) -> Any:
        messages: Any = self._messages
        request_type = getattr(messages, f"{method}Request")
        call = self._channel.unary_unary(
            f"/{self._service}/{method}",
            request_serializer=request_type.SerializeToString,
            response_deserializer=getattr(messages, f"{method}Response").FromString,
        )
        refs = [messages.Claim(namespace=c.namespace, uid=c.uid, name=c.name) for c in claims]
        try:
            return await call(request_type(claims=refs), timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise NotStartedError(f"{method} of {self.driver}: {error.details()}") from error
        except grpc.aio.UsageError as error:
            raise NotStartedError(f"{method} of {self.driver}: {error}") from error
        except asyncio.CancelledError:
            # Closing the channel cancels the calls on it, not the tasks that wait for them.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise NotStartedError(f"{method} of {self.driver}: the plugin went away") from None

    def _complete(self, method: str, claims: Sequence[HeldClaim], answer: Any) -> None:
        """The kubelet trusts no answer that skips a claim or names one it did not ask for."""
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


class PluginFinder:
    """Watches a registry folder and keeps the plugins that registered from it.

    ``on_usable`` and ``on_away`` hear of a driver that registered or answers again, and of one
    whose socket is gone or whose connection broke.
    """

    def __init__(
        self,
        folder: Path,
        *,
        on_usable: Callable[[str], None] = lambda _: None,
        on_away: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._on_usable = on_usable
        self._on_away = on_away
        self._plugins: dict[Path, Plugin] = {}
        self._known: dict[Path, Identity] = {}
        self._tasks: dict[Path, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def plugin(self, driver: str) -> Plugin:
        """The plugin of a driver. Raises NotStartedError while there is none."""
        for plugin in self._plugins.values():
            if plugin.driver == driver:
                return plugin
        raise NotStartedError(f"DRA driver {driver} is not registered")

    async def registered(self, driver: str) -> Plugin:
        """Wait until a driver has registered."""
        while True:
            self._changed.clear()
            try:
                return self.plugin(driver)
            except NotStartedError:
                await self._changed.wait()

    async def run(self) -> None:
        """Loop: look for sockets."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            while True:
                await self._look()
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            for task in self._tasks.values():
                task.cancel()
            for plugin in self._plugins.values():
                await plugin.close()
            self._plugins.clear()

    async def _look(self) -> None:
        present = dict(_sockets(self._folder))
        for path in [one for one in self._known if self._known[one] != present.get(one)]:
            await self._forget(path)
        for path, identity in present.items():
            if path not in self._known:
                self._known[path] = identity
                self._tasks[path] = asyncio.create_task(self._keep(path))

    async def _forget(self, path: Path) -> None:
        del self._known[path]
        if task := self._tasks.pop(path, None):
            task.cancel()
        if plugin := self._plugins.pop(path, None):
            await plugin.close()
            self._on_away(plugin.driver)
            structlog.get_logger().info("plugin gone", driver=plugin.driver)

    async def _keep(self, path: Path) -> None:
        """Register who is behind a socket, then watch the connection to it."""
        plugin = await _registered(path)
        self._plugins[path] = plugin
        self._changed.set()
        structlog.get_logger().info(
            "plugin registered", driver=plugin.driver, service=plugin.version
        )
        self._on_usable(plugin.driver)
        async for connected in plugin.connections():
            if connected:
                self._on_usable(plugin.driver)
            else:
                self._on_away(plugin.driver)


async def _registered(path: Path) -> Plugin:
    """Try until the plugin behind a socket has registered."""
    backoff = Backoff(0.2, 5.0)
    while True:
        try:
            return await register(path)
        except NotStartedError as error:
            structlog.get_logger().info("plugin not registered", error=str(error))
            await backoff.pause()


async def register(path: Path) -> Plugin:
    """Ask who is behind a registration socket, and tell it the verdict.

    Raises:
        NotStartedError: nobody answers, or the plugin can't be used.
    """
    messages: Any = plugin_registration_pb2
    async with grpc.aio.insecure_channel(f"unix:{path}", options=CHANNEL_OPTIONS) as channel:
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
            info = await get_info(messages.InfoRequest(), timeout=REGISTRATION_TIMEOUT_S)
            problem, version = _verdict(info)
            status = messages.RegistrationStatus(plugin_registered=not problem, error=problem)
            await notify(status, timeout=REGISTRATION_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise NotStartedError(f"registration socket {path}: {error.details()}") from error
    if problem:
        raise NotStartedError(f"registration socket {path}: {problem}")
    return Plugin(info.name, info.endpoint or str(path), version)


def _verdict(info: Any) -> tuple[str, str]:
    """Why the plugin can't be used, or the service to call it by."""
    if info.type != PLUGIN_TYPE:
        return f"no handler registered for plugin type: {info.type}", ""
    if not info.name:
        return "DRA plugin name is empty", ""
    for version in SERVICES:
        if version in info.supported_versions:
            return "", version
    return f"none of {list(info.supported_versions)} is supported: want {list(SERVICES)}", ""


def _sockets(folder: Path) -> Iterator[tuple[Path, Identity]]:
    for path in sorted(folder.rglob("*")):
        try:
            entry = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISSOCK(entry.st_mode) and not path.name.startswith("."):
            yield path, (entry.st_ino, entry.st_mtime_ns)


def _device(device: Any) -> PluginDevice:
    return PluginDevice(
        tuple(device.request_names),
        device.pool_name,
        device.device_name,
        tuple(device.cdi_device_ids),
        getattr(device, "share_id", ""),
    )
