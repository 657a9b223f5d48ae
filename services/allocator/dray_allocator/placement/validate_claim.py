"""Claims that can't be decided: a clear reason instead of a search."""

from collections.abc import Iterator, Sequence
from typing import Final

from dray.api import names
from dray.api.claims import Claim, DeviceRequest
from dray.api.placement import HARD, Placement
from dray_allocator.devices.percentages import shares_of, unreadable
from dray_allocator.devices.published_capacity import amount_of

_MANY: Final = 2
"""Stands for an unknown number."""
_NOT_SUPPORTED: Final = (
    f'"{HARD}" is not supported with placement {names.KUBERNETES_COMPATIBLE}, or for requests that '
    "only Kubernetes' allocation can decide, which has no such rule"
)


def validate_claim(claim: Claim, *, is_compatible: bool) -> list[str]:
    """Why a claim can't be decided, in words. ``is_compatible``: in placement mode
    KubernetesCompatible."""
    found = [*claim.spec.unsupported, *unreadable(claim)]
    for _, ask in claim.spec.alternatives():
        found += _of_ask(ask)
    if is_compatible and any(shares_of(claim)):
        found.append(
            "a percentage of a card can't be requested with placement "
            f"{names.KUBERNETES_COMPATIBLE}, because Kubernetes can't express it; request amounts "
            f"({names.TFLOPS_REQUEST}, {names.VRAM_REQUEST}), or use another placement "
            f"({names.PLACEMENT})"
        )
    if sum(map(_fewest, claim.spec.requests)) > names.MAX_GPUS_PER_CLAIM:
        found.append(f"more than {names.MAX_GPUS_PER_CLAIM} devices")
    return list(dict.fromkeys(found))


def refused_topology(placement: Placement, topologies: Sequence[str], most: int) -> str:
    """Why the search can't connect the devices of a pod; empty if it need not. ``most``: the limit
    of the number of these devices. ``topologies``: those that the pod's claims require."""
    if placement.topology != HARD or most < _MANY:
        return ""
    if HARD in topologies:
        return (
            f"{names.GPU_TOPOLOGY} {_NOT_SUPPORTED}; leave it out, or constrain the claim with "
            "matchAttribute"
        )
    return (
        f"placement.topology of the pool {_NOT_SUPPORTED}; override it in the pod "
        f"({names.GPU_TOPOLOGY}), and constrain the claim with matchAttribute if it needs that"
    )


def most_devices(claim: Claim) -> int:
    """The maximum number of devices that a claim may get: many with mode All, none with
    administrative access."""
    return sum(max(map(_most, request.alternatives), default=0) for request in claim.spec.requests)


def fewest_devices(claim: Claim) -> int:
    """The minimum number of different devices that a claim needs: for one request, or for several
    whose devices must differ in an attribute. Other requests may share a device."""
    of = {request.name: _fewest(request) for request in claim.spec.requests}
    apart = (
        sum(of.get(name, 0) for name in one.requests or of)
        for one in claim.spec.constraints
        if one.distinct_attribute is not None
    )
    return max((*of.values(), *apart), default=0)


def _most(ask: DeviceRequest) -> int:
    if ask.admin_access:
        return 0
    return ask.count if ask.mode == "ExactCount" else _MANY


def _fewest(request: DeviceRequest) -> int:
    """The minimum number of devices of a request; 0 for mode All, because it is unknown."""
    return min(
        (one.count if one.mode == "ExactCount" else 0 for one in request.alternatives), default=0
    )


def _of_ask(ask: DeviceRequest) -> Iterator[str]:
    if ask.mode not in ("ExactCount", "All"):
        yield f"request {ask.name}: allocationMode {ask.mode}"
    elif ask.mode == "ExactCount" and ask.count < 1:
        yield f"request {ask.name}: count {ask.count} is below 1"
    for key, text in sorted(ask.capacity.items()):
        if (amount := amount_of(text)) is None or amount < 0:
            what = "is not a quantity" if amount is None else "is negative"
            yield f"request {ask.name}: {key} {text} {what}"
