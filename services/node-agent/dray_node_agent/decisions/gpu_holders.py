"""Which containers hold which GPUs of the node. Pure.

The kubelet says which containers have which claims, of a claim always all devices. The pod says
which of them a container that names a request gets, and to which claim ids of the device plugin
belong.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from dray.kube.convert_pods import claim_names
from dray_node_agent.decisions.claim_devices import prepared_parts
from dray_node_agent.decisions.inventory import PublishedGpu
from dray_node_agent.decisions.listed_containers import ListedContainer
from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.decisions.visible_gpus import (
    ClaimPart,
    Object,
    container_parts,
    containers_of,
)

MOST_HOLDERS: Final = 256
"""Of one GPU: more containers than a kubelet with default settings runs. Tenants write pods with
any number of containers, and each is a series of every metric."""


class HoldingContainer(msgspec.Struct, frozen=True, order=True):
    """A container that has a GPU."""

    namespace: str
    pod: str
    container: str


def gpu_holders(
    listed: Iterable[ListedContainer] | None,
    pods: Sequence[Object],
    claims: Iterable[PreparedClaim],
    published_gpus: Mapping[str, PublishedGpu],
) -> dict[str, tuple[HoldingContainer, ...]]:
    """The first MOST_HOLDERS holders by UUID of the GPU, sorted; a GPU without holders is left
    out. ``listed``: by the kubelet; None: it does not say, and all containers of ``pods`` that
    refer to a prepared claim hold its GPUs."""
    prepared = {
        (claim.namespace, claim.name): prepared_parts(claim, published_gpus) for claim in claims
    }
    by_name = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in pods}
    found: dict[str, set[HoldingContainer]] = {}
    for one in _containers(pods) if listed is None else listed:
        own, known = _by_pod(by_name.get((one.namespace, one.pod)), one.container, prepared)
        given = {published_gpus[name].gpu.uuid for name in one.devices if name in published_gpus}
        for uuid in own | (given - known):
            holder = HoldingContainer(one.namespace, one.pod, one.container)
            found.setdefault(uuid, set()).add(holder)
    return {uuid: tuple(sorted(holders)[:MOST_HOLDERS]) for uuid, holders in found.items()}


def _by_pod(
    pod: Object | None,
    name: str,
    prepared: Mapping[tuple[str, str], Sequence[ClaimPart]],
) -> tuple[set[str], set[str]]:
    """The GPUs of a container by its pod, and those of all prepared claims of the pod."""
    if pod is None:
        return set(), set()
    parts = {
        entry: prepared.get((pod["metadata"]["namespace"], claim), ())
        for entry, claim in claim_names(pod).items()
    }
    own = {
        part.gpu
        for container in containers_of(pod["spec"])
        if container["name"] == name
        for part in container_parts(pod, container, parts)
    }
    return own, {part.gpu for of_claim in parts.values() for part in of_claim}


def _containers(pods: Iterable[Object]) -> list[ListedContainer]:
    """All containers of the pods."""
    return [
        ListedContainer(
            namespace=pod["metadata"]["namespace"],
            pod=pod["metadata"]["name"],
            container=container["name"],
        )
        for pod in pods
        for container in containers_of(pod["spec"])
    ]
