"""What a log holds, and who may use it: devices for PodGroups that have lost pods, and nodes for a
pod or PodGroup that has waited long."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from dray.api.pods import GroupKey, Pod
from dray.messages.decisions import GroupHold, HeldClaim, NodeHold, PodDecision
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


class Claimant(NamedTuple):
    """The pod or group that would use what is held."""

    group: GroupKey | None
    priority: int
    pod_uid: str = ""
    """The UID of a pod that is decided alone; empty for a whole group."""


def is_own(hold: GroupHold | NodeHold, who: Claimant) -> bool:
    """Whether it is held for this pod or group."""
    if hold.group is not None and hold.group == who.group:
        return True
    return isinstance(hold, NodeHold) and hold.uid == who.pod_uid


def may_use(hold: GroupHold | NodeHold, who: Claimant) -> bool:
    """Whether pods get what is held: those for whom it is held, and those of a higher priority."""
    return hold.priority < who.priority or is_own(hold, who)


def claimant(state: AllocatorState, pod: Pod) -> Claimant:
    """The claimant that a pod is when it uses what is held."""
    if pod.member is None:
        return Claimant(None, pod.priority, pod.uid)
    group = state.facts.groups.groups.get(pod.member.group)
    own = None if group is None else group.priority
    return Claimant(pod.member.group, pod.priority if own is None else own, pod.uid)


def is_free(state: AllocatorState, claim: HeldClaim) -> bool:
    """Whether only the hold keeps the claim's former devices: the claim no longer uses them."""
    return state.use_of_claim(claim.uid) is None


@contextmanager
def usable(state: AllocatorState, domain: SchedulingDomain, who: Claimant) -> Iterator[None]:
    """Count held devices and nodes as free if these pods may use them."""
    uids = [
        claim.uid
        for hold in domain.current.group_holds.values()
        if may_use(hold, who)
        for claim in hold.claims
        if state.device_usage.has(claim.uid) and is_free(state, claim)
    ]
    held = domain.current.node_hold
    is_open = held is not None and may_use(held, who)
    nodes = state.open_nodes(domain.current.held_nodes) if is_open else ()
    state.leave_out(uids)
    try:
        yield
    finally:
        state.count_again(uids)
        state.close_nodes(nodes)


def changed_group_holds(
    domain: SchedulingDomain, pods: Iterable[PodDecision], who: Claimant
) -> tuple[GroupHold, ...]:
    """The holds of devices that decisions change: the hold of their own group ends, and holds of
    lower priorities end for the devices that were taken."""
    if not domain.current.group_holds:
        return ()
    taken = {one.id for pod in pods for made in pod.claims for one in made.allocation.devices}
    found = []
    for hold in domain.current.group_holds.values():
        kept = hold.claims
        if is_own(hold, who):
            kept = ()
        elif hold.priority < who.priority:
            kept = tuple([one for one in kept if taken.isdisjoint(_devices(one))])
        if kept != hold.claims:
            found.append(msgspec.structs.replace(hold, claims=kept))
    return tuple(found)


def ended_node_hold(
    domain: SchedulingDomain, pods: Iterable[PodDecision], who: Claimant
) -> NodeHold | None:
    """The end of the hold of nodes, if decisions end it: its own pods start, or pods of a higher
    priority use one of its nodes."""
    hold = domain.current.node_hold
    if hold is None or not may_use(hold, who):
        return None
    if is_own(hold, who) or any(pod.node in hold.nodes for pod in pods):
        return msgspec.structs.replace(hold, nodes=())
    return None


def _devices(claim: HeldClaim) -> Iterable[object]:
    return [one.id for one in claim.allocation.devices]
