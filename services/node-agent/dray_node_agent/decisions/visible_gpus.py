"""Which GPUs each CDI device of a pod must name, so that every container sees all its GPUs. Pure.

A container gets the merged environments of all its CDI devices. If devices set the same variable,
the last one wins, and the kubelet passes the claims of a container in no fixed order (1.36,
``GetResources``). So all devices of a container must name the same GPUs. That is impossible if
containers share only some of their devices: then their devices name no GPUs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dray.kube.convert_pods import claim_uses

Object = Mapping[str, Any]


class ClaimPart(msgspec.Struct, frozen=True):
    """A CDI device of a claim."""

    cdi_id: str
    gpu: str
    """UUID of its GPU."""
    requests: tuple[str, ...]
    """The requests of the claim that it belongs to."""


Parts = Mapping[str, Sequence[ClaimPart]]
"""The CDI devices of a pod's claims, by entry of ``spec.resourceClaims``."""


def visible_gpus(pod: Object, claims: Parts) -> dict[str, tuple[str, ...] | None]:
    """UUIDs of the GPUs that each CDI device names, by CDI id; None: it can name none. A device
    that no container gets is left out."""
    containers = [
        parts
        for spec in containers_of(pod["spec"])
        if (parts := container_parts(pod, spec, claims))
    ]
    sees = [tuple(dict.fromkeys(part.gpu for part in parts)) for parts in containers]
    named: dict[str, tuple[str, ...] | None] = {}
    for parts, gpus in zip(containers, sees, strict=True):
        for part in parts:
            known = named.setdefault(part.cdi_id, gpus)
            named[part.cdi_id] = gpus if known == gpus else None
    # If one device of a container names no GPUs, none of its other devices may name any.
    is_settled = False
    while not is_settled:
        is_settled = True
        for parts in containers:
            names = {named[part.cdi_id] for part in parts}
            if len(names) > 1:
                named |= dict.fromkeys((part.cdi_id for part in parts), None)
                is_settled = False
    return named


def container_parts(pod: Object, container: Object, claims: Parts) -> list[ClaimPart]:
    """The CDI devices that a container gets, in the order of the pod's claims."""
    wanted: dict[str, list[str]] = {}
    for entry in claim_uses(pod, container):
        wanted.setdefault(entry["name"], []).append(entry.get("request") or "")
    return [
        part
        for name, parts in claims.items()
        for part in parts
        if any(not request or request in part.requests for request in wanted.get(name, ()))
    ]


def containers_of(spec: Object) -> list[Object]:
    """Init containers, including sidecars, and containers."""
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
