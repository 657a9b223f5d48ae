"""The kubelet's pod resources API, v1."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import structlog

from dray.api.errors import TemporaryError
from dray.api.names import DRIVER
from dray_node_agent.decisions.device_plugin import IDS_PER_GPU
from dray_node_agent.decisions.listed_containers import ListedContainer
from dray_node_agent.kubelet.client import KubeletCallError, call
from dray_node_agent.kubelet.generated import pod_resources_pb2

_SETTING: Final = "DRAY_NODE__POD_RESOURCES_SOCKET"


class PodResourcesUnavailableError(TemporaryError):
    """The kubelet does not say which devices its containers have."""


async def listed_containers(socket: Path) -> tuple[ListedContainer, ...]:
    """The containers of active pods that have ids or claims of dray, without init containers that
    end. Raises PodResourcesUnavailableError."""
    messages = pod_resources_pb2
    request, answer_type = messages.ListPodResourcesRequest(), messages.ListPodResourcesResponse
    try:
        _require(socket)
        answer = await call(socket, "/v1.PodResourcesLister/List", request, answer_type)
    except OSError as error:
        raise PodResourcesUnavailableError(
            f"the kubelet has no pod resources API at {socket}: {error.strerror}; is its folder "
            f"mounted ({_SETTING})?"
        ) from error
    except KubeletCallError as error:
        raise PodResourcesUnavailableError(
            f"the kubelet's pod resources API at {socket} does not answer: {error}"
        ) from error
    return tuple(_listed(answer.pod_resources))


def _require(socket: Path) -> None:
    """Raise OSError if there is no socket, so that no connection is tried."""
    socket.stat()


def _listed(pods: Iterable[Any]) -> Iterator[ListedContainer]:
    for pod in pods:
        for container in pod.containers:
            ids: dict[str, tuple[str, ...]] = {}
            for given in container.devices:  # one entry for each NUMA node
                if given.resource_name in IDS_PER_GPU:
                    known = ids.get(given.resource_name, ())
                    ids[given.resource_name] = (*known, *given.device_ids)
            claims = frozenset(
                (claim.claim_namespace, claim.claim_name)
                for claim in container.dynamic_resources
                if any(one.driver_name == DRIVER for one in claim.claim_resources)
            )
            if ids or claims:
                yield ListedContainer(
                    namespace=pod.namespace,
                    pod=pod.name,
                    container=container.name,
                    ids=ids,
                    claims=claims,
                )


class ContainerFollower:
    """Keeps the containers that the kubelet listed last, so that readers do not wait for it."""

    def __init__(
        self, socket: Path, *, every_s: float, must_list_claims: Callable[[], bool]
    ) -> None:
        """``must_list_claims``: whether a container with a prepared claim runs now."""
        self._must_list_claims = must_list_claims
        self._socket = socket
        self._every_s = every_s
        self.containers: tuple[ListedContainer, ...] | None = None
        """The containers of the last list; None: the kubelet does not list them."""
        self.problem = ""
        """Why the kubelet does not list them."""

    async def run(self) -> None:
        """Loop: ask the kubelet."""
        while True:
            problem = ""
            try:
                self.containers = await self._listed()
            except PodResourcesUnavailableError as error:
                self.containers, problem = None, str(error)
            if problem != self.problem:
                self.problem = problem
                log = structlog.get_logger()
                if problem:
                    log.warning("metrics name pods by their claims", why=problem)
                else:
                    log.info("metrics name pods as the kubelet lists them")
            await asyncio.sleep(self._every_s)

    async def _listed(self) -> tuple[ListedContainer, ...]:
        """Raises PodResourcesUnavailableError."""
        must_list_claims = self._must_list_claims()  # first: claims may be prepared meanwhile
        listed = await listed_containers(self._socket)
        if must_list_claims and not any(one.claims for one in listed):
            raise PodResourcesUnavailableError(
                f"the kubelet's pod resources API at {self._socket} lists no claim, but pods run "
                "with claims; use Kubernetes 1.34 or newer, or enable the kubelet's feature gate "
                "KubeletPodResourcesDynamicResources"
            )
        return listed
