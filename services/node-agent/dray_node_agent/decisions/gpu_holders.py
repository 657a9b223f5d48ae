"""Which containers hold which GPUs of the node. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from dray.kube.convert_pods import claim_names
from dray_node_agent.decisions.claim_devices import prepared_parts
from dray_node_agent.decisions.inventory import PublishedGpu
from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.decisions.visible_gpus import (
    Object,
    container_parts,
    containers_of,
)


class HoldingContainer(msgspec.Struct, frozen=True, order=True):
    """A container that has a GPU."""

    namespace: str
    pod: str
    container: str


def gpu_holders(
    pods: Iterable[Object],
    claims: Iterable[PreparedClaim],
    published_gpus: Mapping[str, PublishedGpu],
) -> dict[str, tuple[HoldingContainer, ...]]:
    """The holders by UUID of the GPU, sorted; a GPU without holders is left out."""
    prepared = {
        (claim.namespace, claim.name): prepared_parts(claim, published_gpus) for claim in claims
    }
    found: dict[str, set[HoldingContainer]] = {}
    for pod in pods:
        metadata = pod["metadata"]
        namespace = metadata["namespace"]
        parts = {
            entry: prepared.get((namespace, name), ()) for entry, name in claim_names(pod).items()
        }
        for container in containers_of(pod["spec"]):
            holder = HoldingContainer(namespace, metadata["name"], container["name"])
            for part in container_parts(pod, container, parts):
                found.setdefault(part.gpu, set()).add(holder)
    return {uuid: tuple(sorted(holders)) for uuid, holders in found.items()}
