"""Devices that a log holds for PodGroups that have lost pods: who may use them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from dray.api.pods import GroupKey, Pod
from dray.messages.decisions import GroupHold, HeldClaim, PodDecision
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


def may_use(hold: GroupHold, group: GroupKey | None, priority: int) -> bool:
    """Whether pods of this group and priority get what is held: the group's own, and those of a
    higher priority."""
    return hold.group == group or hold.priority < priority


def claimant(state: AllocatorState, pod: Pod) -> tuple[GroupKey | None, int]:
    """The group and the priority by which a pod may use what is held."""
    if pod.member is None:
        return None, pod.priority
    group = state.facts.groups.groups.get(pod.member.group)
    own = None if group is None else group.priority
    return pod.member.group, pod.priority if own is None else own


def is_free(state: AllocatorState, claim: HeldClaim) -> bool:
    """Whether only the hold keeps the claim's former devices: the claim uses them no more."""
    return state.use_of_claim(claim.uid) is None


@contextmanager
def usable(
    state: AllocatorState, domain: SchedulingDomain, group: GroupKey | None, priority: int
) -> Iterator[None]:
    """Count the devices as free that are held, and that this group and priority may use."""
    uids = [
        claim.uid
        for hold in domain.current.holds.values()
        if may_use(hold, group, priority)
        for claim in hold.claims
        if state.device_usage.has(claim.uid) and is_free(state, claim)
    ]
    state.leave_out(uids)
    try:
        yield
    finally:
        state.count_again(uids)


def changed_holds(
    domain: SchedulingDomain, pods: Iterable[PodDecision], group: GroupKey | None, priority: int
) -> tuple[GroupHold, ...]:
    """The holds that decisions change: that of their own group ends, and those of lower priorities
    end for the devices that were taken."""
    taken = {one.id for pod in pods for made in pod.claims for one in made.allocation.devices}
    found = []
    for hold in domain.current.holds.values():
        kept = hold.claims
        if hold.group == group:
            kept = ()
        elif hold.priority < priority:
            kept = tuple([one for one in kept if taken.isdisjoint(_devices(one))])
        if kept != hold.claims:
            found.append(msgspec.structs.replace(hold, claims=kept))
    return tuple(found)


def _devices(claim: HeldClaim) -> Iterable[object]:
    return [one.id for one in claim.allocation.devices]
