"""A choice as it is written to the decision log."""

from dray.domain.claims import AllocatedDevice, Allocation, Claim, first_attempt
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_allocator.domain import Domain
from dray_allocator.lane.asking import allocation_of
from dray_allocator.placement.ask import Wanted, config_of
from dray_allocator.placement.choose import Choice
from dray_allocator.state import AllocatorState


def decision_of(
    state: AllocatorState, domain: Domain, wanted: Wanted, choice: Choice, *, took_us: int = 0
) -> PodDecision:
    """The choice as it is written to the log."""
    pod = wanted.pod
    return PodDecision(
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=choice.node,
        binder=pod.binder,
        claims=tuple(
            _claim(domain, claim, _allocation(state, claim, index, choice))
            for index, claim in enumerate(wanted.claims)
        ),
        cpu_milli=pod.needs.cpu_milli,
        memory_bytes=pod.needs.memory_bytes,
        request_id=pod.request_id,
        traceparent=pod.traceparent,
        considered_devices=choice.considered_devices,
        took_us=took_us,
        resources=pod.needs.resources,
        ports=pod.needs.ports,
    )


def _allocation(state: AllocatorState, claim: Claim, index: int, choice: Choice) -> Allocation:
    if choice.results:
        return allocation_of(choice.results[index])
    shares = [share for share in choice.shares if share.ask.claim_uid == claim.uid]
    devices = tuple(
        AllocatedDevice(share.ask.request.name, share.card.id, None, dict(share.consumed.text))
        for share in shares
    )
    return Allocation(devices, choice.node, config_of(state, claim))


def _claim(domain: Domain, claim: Claim, allocation: Allocation) -> ClaimDecision:
    return ClaimDecision(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        attempt=_next_attempt(domain, claim),
        allocation=allocation,
    )


def _next_attempt(domain: Domain, claim: Claim) -> int:
    known = domain.current.claims.get(claim.uid)
    highest = max(known.attempt if known else 0, claim.marked)
    return max(first_attempt(domain.epoch), highest + 1)
