"""What the device plugin offers to the kubelet, and what a container gets of a claim. Pure.

The kubelet only counts ids, and dray chooses the GPUs: an id stands for no particular GPU. An
unhealthy GPU makes as many ids unhealthy as a GPU has, first the ids of containers that use it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from dray.api.names import GPU_IDS, GPU_RESOURCE, GPU_SHARE_RESOURCE
from dray.kube.convert_pods import has_accounting_claim
from dray_node_agent.decisions.claim_devices import NotPreparedError
from dray_node_agent.decisions.listed_containers import ListedContainer
from dray_node_agent.decisions.prepared_claim import PreparedClaim

IDS_PER_GPU: Final[Mapping[str, int]] = {GPU_RESOURCE: 1, GPU_SHARE_RESOURCE: 256}
"""By resource. The shares suffice for all containers of a kubelet with default settings: 110 pods
with two containers each."""


class DeviceSlot(msgspec.Struct, frozen=True):
    """An id that the kubelet can give to a container."""

    id: str
    is_healthy: bool


def plugin_devices(
    resource: str, gpus: int, unhealthy: Collection[str], held: Mapping[str, Collection[str]]
) -> tuple[DeviceSlot, ...]:
    """The ids of a resource on a node. ``gpus``: the number of GPUs; ``unhealthy``: devices;
    ``held``: by id, the devices that its container uses."""
    each = IDS_PER_GPU[resource]
    ids = [f"{resource.rpartition('/')[2]}-{number}" for number in range(gpus * each)]
    failed: dict[str, None] = {}
    for device in unhealthy:
        users = [one for one in ids if device in held.get(one, ())]
        unused = [one for one in ids if one not in held]
        in_order = dict.fromkeys((*users, *unused, *ids))
        failed |= dict.fromkeys([one for one in in_order if one not in failed][:each])
    return tuple(DeviceSlot(one, one not in failed) for one in ids)


def container_of(
    listed: Sequence[ListedContainer], resource: str, ids: Collection[str]
) -> ListedContainer:
    """The container that is about to start with ``ids``. The kubelet lists no init containers that
    end; a later container of the pod takes their ids over.

    Raises:
        NotPreparedError: the kubelet lists no such container, or containers of several pods.
    """
    found = [one for one in listed if {*one.ids.get(resource, ())} & {*ids}]
    pods = sorted({f"{one.namespace}/{one.pod}" for one in found})
    if len(pods) != 1:
        seen = " and ".join(pods) or "no container"
        raise NotPreparedError(
            f"the kubelet says that {', '.join(sorted(ids))} of {resource} belong to {seen}: "
            "expected a container of one pod"
        )
    return found[0]


def require_decision(pod: Mapping[str, Any], resource: str) -> None:
    """Raise NotPreparedError if dray did not give the pod GPUs."""
    metadata = pod["metadata"]
    if has_accounting_claim(pod) and GPU_IDS in metadata["annotations"]:
        return
    raise NotPreparedError(
        f"pod {metadata['namespace']}/{metadata['name']} asks for {resource}, and dray gave it no "
        "GPUs: it was created while dray's webhook was away, or was bound by somebody else. Delete "
        "it and create it again, without spec.nodeName"
    )


def require_match(
    pod: Mapping[str, Any], claim: PreparedClaim, uuids: Mapping[str, str], count: int | None
) -> None:
    """Raise NotPreparedError if the pod was bound with other GPUs than its claim has, or the
    kubelet counts more than these. ``uuids``: by device; ``count``: whole cards by the kubelet;
    None: it counts shares."""
    where = f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
    bound = pod["metadata"]["annotations"][GPU_IDS]
    held = list(dict.fromkeys(uuids[one.device] for one in claim.devices if one.device in uuids))
    if bound.split(",") != held:
        raise NotPreparedError(
            f"{where} was bound with GPUs {bound} (annotation {GPU_IDS}), but its claim "
            f"{claim.name} holds {','.join(held)}: delete the pod and create it again"
        )
    if count is not None and count > len(held):
        raise NotPreparedError(
            f"the kubelet gives a container of {where} {count} of {GPU_RESOURCE}, but its claim "
            f"{claim.name} holds {len(held)} GPUs: delete the pod and create it again"
        )


def container_edits(claim: PreparedClaim) -> dict[str, Any]:
    """The edits of a container that gets all devices of the claim."""
    merged: dict[str, Any] = {}
    parts = [claim.cdi.get("containerEdits") or {}]
    parts += [device["containerEdits"] for device in claim.cdi["devices"]]
    for edits in parts:
        for field, value in edits.items():
            if isinstance(value, list | tuple):
                known = merged.setdefault(field, [])
                known += [one for one in value if one not in known]
            else:
                merged[field] = value
    return merged
