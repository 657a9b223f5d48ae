"""Claims of the facts as structured parameters read them, and their answers back."""

from collections.abc import Iterator
from functools import cache

from dray.api import names
from dray.api.claims import AllocatedDevice, Allocation, DeviceRequest, DeviceTerms
from dray.api.claims import Claim as KnownClaim
from dray.api.dra.asks import Ask, Claim, DeviceToleration, Request
from dray.api.dra.results import AllocationResult, DeviceResult
from dray.api.pods import Pod
from dray_allocator.devices.percentages import percents
from dray_allocator.devices.versions import (
    DEVICE_BINDING,
    LIST_ATTRIBUTES,
    NEWEST,
    SchedulerVersion,
    rules_for,
)

Share = tuple[tuple[str, int], ...]
"""Billionths of a percent by consumed capacity; none: amounts are stated."""


def claim_of(claim: KnownClaim) -> Claim:
    """What a claim asks for, in full."""
    spec = claim.spec
    requests = spec.in_full or tuple(request_of(one) for one in spec.requests)
    return Claim(claim.namespace, claim.name, claim.uid, requests, spec.constraints, spec.config)


def alternatives_of(claim: Claim) -> Iterator[tuple[Request, Ask]]:
    """Every request, with itself or each of its alternatives."""
    for request in claim.requests:
        for ask in (request.exactly, *request.first_available):
            if ask is not None:
                yield request, ask


def asks_of(claim: KnownClaim) -> tuple[Ask, ...]:
    """Every request and every alternative of a claim."""
    return tuple(ask for _, ask in alternatives_of(claim_of(claim)))


def shares_of(claim: KnownClaim) -> Iterator[Share]:
    """Which share of a card each of them asks for."""
    for request, ask in alternatives_of(claim_of(claim)):
        found = percents(claim, request.name, f"{request.name}/{ask.name}")
        yield tuple(sorted(found.items()))


def needs_lane(claim: KnownClaim) -> bool:
    """Whether a claim asks for what the node table does not read."""
    spec = claim.spec
    plain = all(one.mode == "ExactCount" and not one.admin_access for one in spec.requests)
    return bool(spec.in_full) or not plain


def rules_of(pod: Pod, *, list_attributes: bool, binding_conditions: bool) -> SchedulerVersion:
    """By which rules a pod is decided upon: the newest, whatever the server's version, for those of
    earlier ones differ in faults alone. What the server does not keep is in no slice and no claim.

    Where dray binds, it is ``binding_conditions`` that says whether somebody waits for those of a
    device.
    """
    waits = binding_conditions or pod.binder != names.OWNER_DRAY
    return _rules(waits, list_attributes)


@cache
def _rules(waits: bool, list_attributes: bool) -> SchedulerVersion:
    features = rules_for(NEWEST).features
    if list_attributes:
        features |= {LIST_ATTRIBUTES}
    return rules_for(NEWEST, features if waits else features - {DEVICE_BINDING})


def allocation_of(result: AllocationResult) -> Allocation:
    """An answer as decisions and claims hold it."""
    selector = result.node_selector
    node = "" if selector is None else selector.only_node
    devices = tuple(_allocated(one) for one in result.devices)
    return Allocation(devices, node, result.config, None if node else selector)


def _allocated(one: DeviceResult) -> AllocatedDevice:
    terms = DeviceTerms(one.tolerations, one.binding_conditions, one.binding_failure_conditions)
    return AllocatedDevice(
        one.request,
        one.id,
        one.share_id,
        dict(one.consumed),
        one.admin_access,
        terms if terms != DeviceTerms() else None,
    )


def request_of(known: DeviceRequest) -> Request:
    """One request in full."""
    ask = Ask(
        known.name,
        known.device_class,
        known.selectors,
        known.mode,
        known.count,
        known.admin_access or None,
        tolerations_of(known),
        known.capacity or None,
    )
    return Request(known.name, ask)


def tolerations_of(known: DeviceRequest) -> tuple[DeviceToleration, ...]:
    """The tolerations of one request in full."""
    return tuple(
        DeviceToleration(one.key, one.operator, one.value, one.effect) for one in known.tolerations
    )
