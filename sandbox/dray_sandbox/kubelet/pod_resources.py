"""The stand-in's pod resources API (``v1.PodResourcesLister``, only ``List``)."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from dray.kube.ports import Object
from dray_node_agent.kubelet.generated import pod_resources_pb2
from dray_node_agent.kubelet.server import method_handlers, serving
from dray_sandbox.kubelet.claims import PluginDevice, Prepared, claim_names

_MESSAGES: Final[Any] = pod_resources_pb2


async def serve_forever(
    socket: Path, pods: Callable[[], Iterable[tuple[Object, Prepared]]]
) -> None:
    """Serve on ``socket``. ``pods``: the active ones, with the devices of their claims. Raises
    SocketError."""

    async def listed(_: Any, __: Any) -> Any:
        resources = [_pod_resources(pod, prepared) for pod, prepared in pods()]
        return _MESSAGES.ListPodResourcesResponse(pod_resources=resources)

    request = _MESSAGES.ListPodResourcesRequest
    handlers = method_handlers("v1.PodResourcesLister", {"List": (listed, request)})
    server = await serving(socket, [handlers])
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop(0.0)


def _pod_resources(pod: Object, prepared: Prepared) -> Any:
    return _MESSAGES.PodResources(
        name=pod["metadata"]["name"],
        namespace=pod["metadata"]["namespace"],
        containers=[
            _MESSAGES.ContainerResources(
                name=container["name"],
                dynamic_resources=[*_dynamic_resources(pod, container, prepared)],
            )
            for container in _containers(pod["spec"])
        ],
    )


def _containers(spec: Object) -> list[Object]:
    """Without init containers that end, as the kubelet lists them."""
    sidecars = [
        one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"
    ]
    return [*sidecars, *spec["containers"]]


def _dynamic_resources(pod: Object, container: Object, prepared: Prepared) -> Iterator[Any]:
    """All devices of the claims that a container refers to, even if it names one request. Nothing
    before the container's claims are prepared."""
    used = {entry["name"] for entry in (container.get("resources") or {}).get("claims") or ()}
    if not used <= prepared.keys():
        return
    for entry, (claim, _) in claim_names(pod).items():
        if entry in used:
            yield _MESSAGES.DynamicResource(
                claim_name=claim,
                claim_namespace=pod["metadata"]["namespace"],
                claim_resources=map(_claim_resource, prepared[entry]),
            )


def _claim_resource(device: PluginDevice) -> Any:
    return _MESSAGES.ClaimResource(
        cdi_devices=[_MESSAGES.CDIDevice(name=one) for one in device.cdi_ids],
        driver_name=device.driver,
        pool_name=device.pool,
        device_name=device.device,
        share_id=device.share_id or None,
    )
