"""The kubelet's gRPC services for Dynamic Resource Allocation on unix sockets.

``pluginregistration.Registration`` tells the kubelet where ``DRAPlugin`` is; v1 and v1beta1
of the latter differ in one field and share their handlers. ``DRAResourceHealth`` is optional; its
versions v1 and v1alpha1 are the same.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

import grpc
import structlog

from dray.api.errors import PermanentError
from dray_node_agent.decisions.device_health import GpuHealth
from dray_node_agent.decisions.prepared_claim import PreparedClaim, PreparedDevice
from dray_node_agent.kubelet.generated import (
    dra_health_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    plugin_registration_pb2,
)
from dray_node_agent.kubelet.preparer import ClaimRef, Preparer

_PLUGIN_TYPE = "DRAPlugin"
_REGISTRATION_SERVICE = "pluginregistration.Registration"
_SERVICES: dict[str, tuple[str, ModuleType]] = {
    "v1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra_v1_pb2),
    "v1beta1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", dra_v1beta1_pb2),
}
"""The kubelet's name of each version of the service, its full name and its messages."""
_HEALTH_SERVICES: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
_REPEAT_HEALTH_S: Final = 5.0
"""How often the kubelet gets an unchanged list. It forgets a device after 30 s, and all devices
when the stream of another agent of this driver ends."""

Handler = Callable[[Any, Any], Awaitable[Any]]
StreamHandler = Callable[[Any, Any], AsyncIterator[Any]]


class SocketError(PermanentError):
    """A socket can't be served."""


class HealthFeed(Protocol):
    """The health of the driver's devices."""

    def device_health(self) -> Sequence[GpuHealth]:
        """All devices now."""

    async def health_changed(self) -> None:
        """Wait for the next change."""


class KubeletServer:
    """Serves ``preparer`` to the kubelet. ``on_registered`` gets the registration's error, or an
    empty text. Without ``health``, the health service is not offered."""

    def __init__(
        self,
        preparer: Preparer,
        *,
        driver: str,
        endpoint: Path,
        registration: Path,
        on_registered: Callable[[str], None] = lambda _: None,
        health: HealthFeed | None = None,
    ) -> None:
        self._preparer = preparer
        self._health = health
        self._driver = driver
        self._endpoint = endpoint
        self._registration = registration
        self._on_registered = on_registered
        self._plugin_server: Any = None
        self._registrar: Any = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Serve; the registration socket comes last, because the kubelet calls at once.

        Raises SocketError if a socket can't be bound.
        """
        plugin = [self._plugin_handler(name, messages) for name, messages in _SERVICES.values()]
        if self._health is not None:
            plugin += [self._health_handler(name, self._health) for name in _HEALTH_SERVICES]
        self._plugin_server = await serving(self._endpoint, plugin)
        self._registrar = await serving(self._registration, [self._registration_handler()])

    async def stop(self, grace_s: float) -> None:
        """Remove the registration, then finish the calls in flight. Idempotent."""
        self._stopping.set()  # a stream would last for the whole grace
        if self._registrar is not None:
            await self._registrar.stop(grace_s)
            self._registration.unlink(missing_ok=True)
        if self._plugin_server is not None:
            await self._plugin_server.stop(grace_s)
            self._endpoint.unlink(missing_ok=True)
        self._registrar = self._plugin_server = None
        await self._preparer.drain()

    def _registration_handler(self) -> Any:
        messages = plugin_registration_pb2

        async def get_info(_: Any, __: Any) -> Any:
            return messages.PluginInfo(
                type=_PLUGIN_TYPE,
                name=self._driver,
                endpoint=str(self._endpoint),
                supported_versions=[*_SERVICES, *(_HEALTH_SERVICES if self._health else ())],
            )

        async def notify(status: Any, _: Any) -> Any:
            problem = "" if status.plugin_registered else status.error or "no reason given"
            self._on_registered(problem)
            log = structlog.get_logger()
            if problem:
                log.error("the kubelet refused the plugin", error=problem)
            else:
                log.info("the kubelet registered the plugin", driver=self._driver)
            return messages.RegistrationStatusResponse()

        return method_handlers(
            _REGISTRATION_SERVICE,
            {
                "GetInfo": (get_info, messages.InfoRequest),
                "NotifyRegistrationStatus": (notify, messages.RegistrationStatus),
            },
        )

    def _health_handler(self, service: str, feed: HealthFeed) -> Any:
        messages = dra_health_pb2

        async def watch(_: Any, __: Any) -> AsyncIterator[Any]:
            stopping = asyncio.ensure_future(self._stopping.wait())
            try:
                while not stopping.done():
                    changed = asyncio.ensure_future(feed.health_changed())
                    try:
                        devices = [_device_health(one) for one in feed.device_health()]
                        yield messages.NodeWatchResourcesResponse(devices=devices)
                        await asyncio.wait(
                            [changed, stopping],
                            timeout=_REPEAT_HEALTH_S,
                            return_when=asyncio.FIRST_COMPLETED,
                        )
                    finally:
                        changed.cancel()
            finally:
                stopping.cancel()

        request = messages.NodeWatchResourcesRequest
        return method_handlers(service, {}, {"NodeWatchResources": (watch, request)})

    def _plugin_handler(self, service: str, messages: Any) -> Any:
        async def prepare(request: Any, _: Any) -> Any:
            answers = await self._preparer.prepare(_refs(request))
            return messages.NodePrepareResourcesResponse(
                claims={uid: _prepared(messages, answer) for uid, answer in answers.items()}
            )

        async def unprepare(request: Any, _: Any) -> Any:
            answers = await self._preparer.unprepare(_refs(request))
            return messages.NodeUnprepareResourcesResponse(
                claims={
                    uid: messages.NodeUnprepareResourceResponse(error=error)
                    for uid, error in answers.items()
                }
            )

        return method_handlers(
            service,
            {
                "NodePrepareResources": (prepare, messages.NodePrepareResourcesRequest),
                "NodeUnprepareResources": (unprepare, messages.NodeUnprepareResourcesRequest),
            },
        )


async def serving(path: Path, handlers: list[Any]) -> Any:
    """A running server on a socket. Raises SocketError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    server = grpc.aio.server()
    for handler in handlers:
        server.add_generic_rpc_handlers((handler,))
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise SocketError(f"can't serve on {path}: {error}; is its folder writable?") from error
    await server.start()
    return server


def _device_health(one: GpuHealth) -> Any:
    messages = dra_health_pb2
    health = {None: messages.UNKNOWN, True: messages.HEALTHY, False: messages.UNHEALTHY}
    return messages.DeviceHealth(
        device=messages.DeviceIdentifier(pool_name=one.pool, device_name=one.device),
        health=health[one.is_healthy],
        last_updated_time=int(time.time()),
        message=one.message,
    )


def method_handlers(
    service: str,
    methods: dict[str, tuple[Handler, Any]],
    streams: dict[str, tuple[StreamHandler, Any]] | None = None,
) -> Any:
    """A service's methods: their handlers, and the types of their requests."""
    return grpc.method_handlers_generic_handler(
        service,
        {
            name: grpc.unary_unary_rpc_method_handler(
                handler,
                request_deserializer=request.FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )
            for name, (handler, request) in methods.items()
        }
        | {
            name: grpc.unary_stream_rpc_method_handler(
                stream,
                request_deserializer=request.FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )
            for name, (stream, request) in (streams or {}).items()
        },
    )


def _refs(request: Any) -> list[ClaimRef]:
    """The requested claims, without duplicates."""
    refs = {claim.uid: ClaimRef(claim.namespace, claim.uid, claim.name) for claim in request.claims}
    return list(refs.values())


def _prepared(messages: Any, answer: PreparedClaim | str) -> Any:
    if isinstance(answer, str):
        return messages.NodePrepareResourceResponse(error=answer)
    return messages.NodePrepareResourceResponse(
        devices=[_device(messages, device) for device in answer.devices]
    )


def _device(messages: Any, device: PreparedDevice) -> Any:
    made = messages.Device(
        request_names=[device.request],
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=list(device.cdi_ids),
    )
    if device.share_id is not None and "share_id" in made.DESCRIPTOR.fields_by_name:
        made.share_id = device.share_id
    return made
