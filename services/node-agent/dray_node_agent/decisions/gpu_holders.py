"""Which containers hold which GPUs of the node. Pure.

The kubelet says which containers have which claims. The node-agent knows which GPUs are prepared
for these claims. The pod says which of the GPUs a container gets if it names a request, and to
which claim the device plugin's ids belong.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
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
"""Per GPU; a kubelet with default settings runs fewer containers. Tenants can write pods with any
number of containers, and each container is a series of every metric."""


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
    """At most MOST_HOLDERS holders by UUID of the GPU, sorted; a GPU without holders is left out.
    ``listed``: the containers that the kubelet has listed at any earlier time. None: it lists none;
    then all containers of ``pods`` that refer to a prepared claim hold its GPUs."""
    prepared = {
        (claim.namespace, claim.name): prepared_parts(claim, published_gpus) for claim in claims
    }
    pods_by_name = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in pods}
    by_pod = {key: _by_pod(pod, prepared) for key, pod in pods_by_name.items()}
    found: dict[str, set[HoldingContainer]] = {}
    for one in _containers(pods) if listed is None else listed:
        known, gpus = by_pod.get((one.namespace, one.pod), (set(), {}))
        given = {part.gpu for claim in one.claims - known for part in prepared.get(claim, ())}
        for uuid in gpus.get(one.container, set()) | given:
            holder = HoldingContainer(one.namespace, one.pod, one.container)
            found.setdefault(uuid, set()).add(holder)
    return {uuid: _first(holders) for uuid, holders in found.items()}


def must_list_claims(pods: Iterable[Object], claims: Iterable[PreparedClaim]) -> bool:
    """Whether a container with a prepared claim runs, so that the kubelet must list a claim."""
    prepared = {(claim.namespace, claim.name) for claim in claims}
    for pod in pods:
        meta, names = pod["metadata"], claim_names(pod)
        is_running = (pod.get("status") or {}).get("phase") == "Running"
        if is_running and not meta.get("deletionTimestamp"):
            for container in pod["spec"].get("containers") or ():
                for use in (container.get("resources") or {}).get("claims") or ():
                    if (meta["namespace"], names.get(use["name"])) in prepared:
                        return True
    return False


def _by_pod(
    pod: Object, prepared: Mapping[tuple[str, str], Sequence[ClaimPart]]
) -> tuple[set[tuple[str, str]], dict[str, set[str]]]:
    """The claims of a pod, and the GPUs of each container by its name."""
    claims = {
        entry: (pod["metadata"]["namespace"], claim) for entry, claim in claim_names(pod).items()
    }
    parts = {entry: prepared.get(claim, ()) for entry, claim in claims.items()}
    gpus = {
        container["name"]: {part.gpu for part in container_parts(pod, container, parts)}
        for container in containers_of(pod["spec"])
    }
    return {*claims.values()}, gpus


def _first(holders: Collection[HoldingContainer]) -> tuple[HoldingContainer, ...]:
    """At most MOST_HOLDERS, sorted: the first container of each pod comes before second ones."""
    counts = Counter[tuple[str, str]]()
    ranked: list[tuple[int, HoldingContainer]] = []
    for one in sorted(holders):
        ranked.append((counts[one.namespace, one.pod], one))
        counts[one.namespace, one.pod] += 1
    return tuple(sorted(one for _, one in sorted(ranked)[:MOST_HOLDERS]))


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
