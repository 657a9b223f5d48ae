"""A choice as it is written to the decision log."""

import msgspec

from dray.api.claims import AllocatedDevice, Allocation, Claim, first_attempt
from dray.messages.decisions import ClaimDecision, PodDecision
from dray.reasons import Reason
from dray_allocator.placement.choice import Choice
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.values.options import AllocatorOptions


def decision_of(
    domain: SchedulingDomain, wanted: PodRequest, choice: Choice, *, took_us: int = 0
) -> PodDecision:
    """The choice as it is written to the log."""
    pod, needs = wanted.pod, wanted.pod.needs
    allocations = _allocations(wanted, choice)
    return PodDecision(
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=choice.node,
        binder=pod.binder,
        claims=tuple(
            [
                _claim(domain, claim, allocation)
                for claim, allocation in zip(wanted.claims, allocations, strict=True)
            ]
        ),
        cpu_milli=needs.cpu_milli,
        memory_bytes=needs.memory_bytes,
        request_id=pod.request_id,
        traceparent=pod.traceparent,
        considered_devices=choice.considered_devices,
        took_us=took_us,
        resources=needs.resources,
        ports=needs.ports,
    )


def size_bytes(decision: PodDecision) -> int:
    """What the decision takes of a record."""
    return len(msgspec.json.encode(decision))


def too_large(rules: AllocatorOptions, decision: PodDecision) -> tuple[Reason, ...]:
    """Why the decision can't be written; empty if it can."""
    size = size_bytes(decision)
    if size <= rules.decided_bytes:
        return ()
    what = (
        f"the decision would have {size} bytes, {rules.decided_bytes} at most: make the "
        "configuration of the pod's claims and of their DeviceClasses shorter"
    )
    return (Reason("unsupported", what, 1, 1, "pod"),)


def _allocations(wanted: PodRequest, choice: Choice) -> list[Allocation]:
    """What each claim gets."""
    if choice.results:
        return list(choice.results)
    devices: list[list[AllocatedDevice]] = [[] for _ in wanted.claims]
    for share in choice.shares:
        ask = share.ask
        given = AllocatedDevice(ask.request.name, share.card.id, None, share.consumed.text)
        devices[ask.claim].append(given)
    return [
        Allocation(tuple(given), choice.node, config)
        for given, config in zip(devices, wanted.configs, strict=True)
    ]


def _claim(domain: SchedulingDomain, claim: Claim, allocation: Allocation) -> ClaimDecision:
    return ClaimDecision(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        attempt=_next_attempt(domain, claim),
        allocation=allocation,
    )


def _next_attempt(domain: SchedulingDomain, claim: Claim) -> int:
    known = domain.current.claims.get(claim.uid)
    before = 0 if known is None else known.attempt
    return max(first_attempt(domain.epoch), before + 1, claim.decision + 1, claim.void + 1)
