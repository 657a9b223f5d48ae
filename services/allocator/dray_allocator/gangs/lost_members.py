"""Devices of lost pods that are held for their group, so that new pods find room. Pure.

The hold begins when a group that ran falls below its minimum, and ends after ``group_hold_s``, with
the next decision on the group, or when the group or all of its pods are gone.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dray.api.pods import Pod
from dray.messages.decisions import GroupHold, HeldClaim
from dray_allocator.cycle.records import size_bytes
from dray_allocator.gangs.membership import Membership, priority_of
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.pending_groups import RunningMember
from dray_allocator.state.state import AllocatorState

RunningMembers = Mapping[str, RunningMember]
"""By pod UID."""
_MOST_CLAIMS: Final = 1024
"""The maximum number of held claims in one pool: a decision may look at all of them."""


def running_members(
    state: AllocatorState, found: Membership, known: RunningMembers
) -> dict[str, RunningMember]:
    """The members that run. ``known``: those that were seen before."""
    now = RunningMember(state.facts.now_unix_s, ())
    return {
        pod.uid: RunningMember(
            known.get(pod.uid, now).since_unix_s,
            known.get(pod.uid, now).claims or _claims(state, pod),
        )
        for pod, _ in found.nodes
    }


def _claims(state: AllocatorState, pod: Pod) -> tuple[HeldClaim, ...]:
    """A pod's claims that have devices."""
    return tuple(
        HeldClaim(uid=claim.uid, allocation=claim.allocation)
        for claim in state.facts.claims_of(pod) or ()
        if claim.allocation is not None and claim.allocation.devices
    )


def group_hold_for(
    state: AllocatorState,
    found: Membership,
    before: RunningMembers,
    now: RunningMembers,
    holds: Mapping[str, GroupHold],
) -> GroupHold | None:
    """What is held for a group from now on; None: nothing. ``holds``: those of its pool so far."""
    hold = holds.get(found.group.uid)
    others = [one for one in holds.values() if one is not hold]
    known = () if hold is None else hold.claims
    uids = {claim.uid for claim in known}
    lost = [
        claim
        for uid, one in before.items()
        if uid not in now and _may_hold(state, found, one, others)
        for claim in one.claims
        if claim.uid not in uids
    ]
    room = _MOST_CLAIMS - sum(len(one.claims) for one in others)
    claims = _bounded(state, (*known, *lost))[: max(0, room)]
    is_alive = any(pod.phase != "Succeeded" for pod, _ in found.nodes)
    if found.is_met or not is_alive or not claims or not state.options.group_hold_s:
        return None
    if hold is not None:
        return msgspec.structs.replace(hold, claims=claims)
    now_unix_s = state.facts.now_unix_s
    return GroupHold(
        group=found.group.key,
        uid=found.group.uid,
        priority=priority_of(found.group, (pod for pod, _ in found.nodes)),
        since_unix_s=now_unix_s,
        until_unix_s=now_unix_s + state.options.group_hold_s,
        claims=claims,
    )


def _may_hold(
    state: AllocatorState, found: Membership, lost: RunningMember, others: Sequence[GroupHold]
) -> bool:
    """Whether the devices of a lost pod are held. If more than one group of a namespace could hold
    the devices of pods that ran only briefly, a tenant could keep many times its quota from
    others."""
    ran_s = state.facts.now_unix_s - lost.since_unix_s
    namespace = found.group.key.namespace
    return ran_s >= state.options.group_hold_s or all(
        one.group.namespace != namespace for one in others
    )


def _bounded(state: AllocatorState, claims: Sequence[HeldClaim]) -> tuple[HeldClaim, ...]:
    """The first of these claims: as many as one record has room for."""
    used_bytes = 0
    for number, claim in enumerate(claims):
        used_bytes += size_bytes(claim) + 1
        if used_bytes > state.options.decided_bytes:
            return tuple(claims[:number])
    return tuple(claims)


def group_hold_now(state: AllocatorState, domain: SchedulingDomain, hold: GroupHold) -> GroupHold:
    """What is left of a hold: nothing once it has ended, nothing on nodes that left the pool."""
    is_over = _has_ended(state, domain, hold)
    kept = [] if is_over else [one for one in hold.claims if _is_served(state, domain, one)]
    return msgspec.structs.replace(hold, claims=tuple(kept))


def _is_served(state: AllocatorState, domain: SchedulingDomain, claim: HeldClaim) -> bool:
    node = claim.allocation.node
    return not node or state.facts.serves(node, domain.name)


def _has_ended(state: AllocatorState, domain: SchedulingDomain, hold: GroupHold) -> bool:
    """Whether the time of a hold is over, or its group or all of its pods are gone. A hold that has
    not begun counts as ended: a clock was wrong."""
    groups = state.facts.groups
    group = groups.groups.get(hold.group)
    if group is None or group.uid != hold.uid or domain.name not in groups.pools(hold.group):
        return True
    return not hold.since_unix_s <= state.facts.now_unix_s < hold.until_unix_s
