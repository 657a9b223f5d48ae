"""The kubelet's pod resources API, v1."""

from pathlib import Path

import grpc

from dray.api.errors import DrayError
from dray_node_agent.decisions.device_plugin import ContainerDevices
from dray_node_agent.kubelet.client import call
from dray_node_agent.kubelet.generated import pod_resources_pb2


class PodResourcesUnavailableError(DrayError):
    """The kubelet does not say which devices its containers have."""


async def allocated_devices(socket: Path) -> list[ContainerDevices]:
    """What the kubelet has allocated to the containers of its active pods. Raises
    PodResourcesUnavailableError."""
    request = pod_resources_pb2.ListPodResourcesRequest()
    answer_type = pod_resources_pb2.ListPodResourcesResponse
    try:
        answer = await call(socket, "/v1.PodResourcesLister/List", request, answer_type)
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
