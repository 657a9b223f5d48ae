"""The decision on one PodGroup: which of its pods start, where, or why none does."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from dray.api.claims import Claim
from dray.api.groups import GroupCount, PodGroup, minimum_field
from dray.api.names import OWNER_DRAY
from dray.api.pods import GroupKey, Pod
from dray.messages.decisions import GroupDecision, PodDecision
from dray.reasons import Reason
from dray_allocator.cycle.records import Reasons, size_bytes
from dray_allocator.explain.formatting import moment
from dray_allocator.explain.pods import explain_pod
from dray_allocator.gangs.joint_search import JointSearch
from dray_allocator.gangs.membership import Membership, count_pod, membership, priority_of
from dray_allocator.gangs.placements import Member, Placements
from dray_allocator.gangs.resources import capacity_of_cards, missing_resources
from dray_allocator.gangs.selection import Selection
from dray_allocator.gangs.slots import (
    ShortCapacity,
    needed_slots,
    short_capacities,
    slots_of,
)
from dray_allocator.placement.holds import Claimant, usable
from dray_allocator.placement.pod_request import PodRequest, wanted
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.pending_groups import NO_HINT, Hint
from dray_allocator.state.state import AllocatorState

_GROUP: Final = "group"
"""Kind of the reasons that concern a group as a whole."""
_MANY_TRIALS: Final = 20
"""A search with this many trials of nodes is not repeated at once."""


Needs = list[tuple[PodRequest, int]]
"""Per kind of pods, an example and the number of pods."""


@dataclass(frozen=True, slots=True)
class GroupWaits:
    """Why no pod of a group starts."""

    reasons: Reasons
    hint: Hint = NO_HINT
    was_long: bool = False
    """Whether a joint search of many trials found nothing."""


@dataclass(frozen=True, slots=True)
class GroupStarts:
    """The decisions on a group's pods, in the parts in which they are written."""

    parts: tuple[tuple[PodDecision, ...], ...]
    requests: tuple[PodRequest, ...]


def undecidable(state: AllocatorState, domain: SchedulingDomain, key: GroupKey) -> Reasons:
    """Why the group can't be decided, however much is free; empty if it can."""
    group = state.facts.groups.groups.get(key)
    if group is None:
        what = f"there is no PodGroup {key}, which the pod names"
        return (Reason(_GROUP, what, 0, 0, "group"),)
    if group.blocked:
        return (Reason(_GROUP, group.blocked, 0, 0, "group"),)
    size, most = state.facts.groups.size(key), state.options.group_pods
    if size > most:
        what = f"PodGroup {key} has {size} pods: dray decides groups of {most} pods at most"
        return (Reason(_GROUP, what, 0, 0, "group"),)
    return ()


def lacking_pods(domain: SchedulingDomain, found: Membership) -> Reasons:
    """Which pods a group lacks for its minimum, however much is free; empty if it has enough."""
    return () if found.available().is_met else (_too_few(domain, found),)


def decide_group(
    state: AllocatorState, domain: SchedulingDomain, key: GroupKey, *, charges: bool = False
) -> GroupStarts | GroupWaits | None:
    """The decision; None if there is nothing to decide now. The state is not changed, unless the
    group starts and ``charges`` is true: its devices then stay charged."""
    if reasons := undecidable(state, domain, key):
        return GroupWaits(reasons)
    found = membership(state, state.facts.groups.groups[key])
    if found.is_met or found.in_flight or not found.candidates:
        return None
    if lacking := lacking_pods(domain, found):
        return GroupWaits(lacking)
    if not (domain.current.group_holds or domain.current.node_hold):
        return _decide(state, domain, found, charges=charges)
    with usable(state, domain, Claimant(key, priority_of(found.group, found.candidates))):
        return _decide(state, domain, found, charges=charges)


def _decide(
    state: AllocatorState, domain: SchedulingDomain, found: Membership, *, charges: bool
) -> GroupStarts | GroupWaits:
    """The decision on a group that has enough pods."""
    if not found.nodes and (missing := missing_resources(state, domain, found.group)):
        hint = Hint(resource=missing[0].resource, resource_nano=missing[0].asked_nano)
        return GroupWaits(tuple([one.reason for one in missing]), hint)
    members, refused, hint = _members(state, domain, found)
    if refused and not _are_enough(found, members):
        return GroupWaits(refused, hint)
    if waits := _no_room(state, domain, found, members):
        return waits
    return _search(state, domain, found, members, charges=charges)


def _are_enough(found: Membership, members: Sequence[Member]) -> bool:
    """Whether the minimum would be met if all of these ran."""
    count = GroupCount(found.group)
    for pod in (*(one for one, _ in found.nodes), *(one.pod for one in members), *found.riders):
        count_pod(count, pod)
    return count.is_met


def needs_of_group(state: AllocatorState, domain: SchedulingDomain, key: GroupKey) -> Needs:
    """For each kind of pods with devices, how many of them the group must start together; the
    largest pods first. Empty if there are none, or if a pod of the group can't be decided or can't
    be counted by the node table."""
    found = membership(state, state.facts.groups.groups[key])
    members, refused, _ = _members(state, domain, found)
    if refused or not all(one.kind for one in members):
        return []
    example = {one.kind: one for one in reversed(members)}
    needed = needed_slots(found, members)
    kinds = [kind for kind in needed if example[kind].request.pattern.needs_devices]
    kinds.sort(key=lambda kind: -example[kind].size)
    return [(example[kind].request, needed[kind]) for kind in kinds]


def _members(
    state: AllocatorState, domain: SchedulingDomain, found: Membership
) -> tuple[list[Member], Reasons, Hint]:
    """The pods that can be decided, with their requests; why the first of the others can't be
    decided; and what would change that."""
    members, refused, hint = [], Reasons(), Hint(refused_at=state.requirements_version)
    are_shared: dict[str, bool] = {}
    for pod in found.candidates:
        request = wanted(state, domain.name, pod)
        if not isinstance(request, PodRequest):
            refused = refused or request
            continue
        shared = _shared(state, request, are_shared)
        if pod.binder == OWNER_DRAY and (reason := _unshareable(found.group, pod, shared)):
            refused, hint = refused or (reason,), NO_HINT  # Other pods may end.
            continue
        size = sum(one.most_devices for one in request.pattern.requirements)
        members.append(Member(request, size, frozenset([claim.uid for claim in shared])))
    return members, refused, hint


def _shared(state: AllocatorState, request: PodRequest, known: dict[str, bool]) -> list[Claim]:
    """The claims of a pod that other pods, which have not ended, refer to as well. ``known``: for
    the claims that were checked, by UID, whether other pods refer to them."""
    facts, found = state.facts, []
    for claim in request.claims:
        if claim.uid not in known:
            pods = facts.pods_named((claim.namespace, claim.name))
            wanting = islice(filter(facts.pod_wants, pods), 2) if len(pods) > 1 else ()
            known[claim.uid] = len(tuple(wanting)) > 1
        if known[claim.uid]:
            found.append(claim)
    return found


def _unshareable(group: PodGroup, pod: Pod, shared: Sequence[Claim]) -> Reason | None:
    """Why dray can't bind a pod that shares claims: only a claim of the group is reserved for all
    pods of the group at once."""
    if not shared:
        return None
    own = {one.claim for one in pod.claims if group.owns(one)}
    for claim in shared:
        if claim.name not in own:
            what = f"several pods of PodGroup {group.key} refer to claim {claim.name}"
            detail = (
                "dray binds one pod per claim: refer to a resourceClaimTemplateName, or let "
                "spec.resourceClaims of a PodGroup of Kubernetes name the claim"
            )
            return Reason(_GROUP, what, 1, 1, "claim", detail)
    return None


def _no_room(
    state: AllocatorState,
    domain: SchedulingDomain,
    found: Membership,
    members: Sequence[Member],
) -> GroupWaits | None:
    """A refusal without a search: the nodes don't have room for enough equal pods, or the devices
    have less of a capacity than pods of several kinds ask for together."""
    for kind, number in needed_slots(found, members).items():
        example = next(one for one in members if one.kind == kind)
        counter = slots_of(state, domain, example.request)
        if counter is None or counter.total >= number:
            continue
        hint = Hint(kind, number)
        return GroupWaits(_short_of(state, domain, found, example, counter.total, number), hint)
    for short in short_capacities(state, domain, found, members):
        hint = Hint(resource=capacity_of_cards(short.name), resource_nano=short.asked.nano)
        return GroupWaits((_short_of_capacity(found, short),), hint)
    return None


def _search(
    state: AllocatorState,
    domain: SchedulingDomain,
    found: Membership,
    members: list[Member],
    *,
    charges: bool,
) -> GroupStarts | GroupWaits:
    running = [(pod.member.task, node) for pod, node in found.nodes if pod.member is not None]
    sharing = [one for one in members if one.is_sharing]
    search = JointSearch(state, domain, found.group, running, sharing)
    selection = Selection(search, found, members)
    decided: GroupStarts | GroupWaits | None = None
    try:
        if selection.run():
            decided = _starts(state, found, search.placed)
            return decided
        was_long = search.budget.tried >= _MANY_TRIALS
        return GroupWaits(_unfit(state, domain, found, search, selection), was_long=was_long)
    finally:
        if not (charges and isinstance(decided, GroupStarts)):
            search.reset({})


def _starts(
    state: AllocatorState, found: Membership, placed: Placements
) -> GroupStarts | GroupWaits:
    group, options, decisions = found.group, state.options, placed.decisions()
    first = decisions[0].claims[0]
    joint = GroupDecision(
        id=f"{first.uid}.{first.attempt}",
        group=group.key,
        uid=group.uid,
        size=len(decisions),
        timeout_s=group.timeout_s or options.group_timeout_s,
    )
    parts: list[list[PodDecision]] = [[]]
    part_bytes = total_bytes = 0
    for decision in decisions:
        made = msgspec.structs.replace(decision, group=joint)
        size = size_bytes(made) + 1
        if parts[-1] and part_bytes + size > options.decided_bytes:
            parts.append([])
            part_bytes = 0
        part_bytes += size
        total_bytes += size
        parts[-1].append(made)
    if len(parts) > options.group_parts:
        most = options.group_parts * options.decided_bytes
        what = (
            f"the decision on PodGroup {group.key} would have {total_bytes} bytes, {most} at most: "
            "lower its minimum, or let its pods ask for fewer devices"
        )
        return GroupWaits((Reason(_GROUP, what, 0, 0, "group"),))
    return GroupStarts(tuple(tuple(part) for part in parts), placed.requests())


def _too_few(domain: SchedulingDomain, found: Membership) -> Reason:
    """Not enough pods exist, or can be decided."""
    count = found.available()
    parts = [count.in_words()]
    if found.gated:
        parts.append(f"{found.gated} more are gated by another controller")
    if found.incomplete:
        parts.append(f"{found.incomplete} more have no ResourceClaim yet")
    if (hold := domain.current.group_holds.get(found.group.uid)) is not None:
        parts.append(f"devices of lost pods are held for it until {moment(hold.until_unix_s)}")
    what = f"PodGroup {found.group.key} has not enough pods"
    return Reason(_GROUP, what, 0, 0, "group", "; ".join(parts))


def _short_of(
    state: AllocatorState,
    domain: SchedulingDomain,
    found: Membership,
    example: Member,
    slots: int,
    needed: int,
) -> Reasons:
    """The nodes have room for fewer pods like ``example`` than are needed."""
    counter = slots_of(state, domain, example.request)
    potential = slots if counter is None else counter.potential()
    key, task = found.group.key, f" of task {example.task}" if example.task else ""
    if potential < needed:
        what = (
            f"PodGroup {key} can never fit: even without other pods, the pool has room for "
            f"{potential} of {needed} pods{task} at once; {_would_fit(found, needed - potential)}"
        )
        return (Reason(_GROUP, what, 0, 0, "group"), *explain_pod(state, domain, example.request))
    what = f"PodGroup {key} lacks room for pods{task}"
    detail = _would_fit(found, needed - slots)
    head = Reason(_GROUP, what, needed - slots, needed, "member", detail)
    return (head, *explain_pod(state, domain, example.request))


def _short_of_capacity(found: Membership, short: ShortCapacity) -> Reason:
    key, asked = found.group.key, f"its pods ask for {short.name} {short.asked} at least"
    if short.total < short.asked:
        have = f"all devices of the pool have {short.total}"
        return Reason(_GROUP, f"PodGroup {key} can never fit: {asked}, and {have}", 0, 0, "group")
    detail = f"the devices of the pool have {short.free} free"
    return Reason(_GROUP, f"PodGroup {key} lacks room: {asked}", 0, 0, "group", detail)


def _would_fit(found: Membership, short: int) -> str:
    """What would make a group fit if it lacks room for ``short`` pods."""
    group = found.group
    text = f"it starts once {short} more fit"
    least = group.minimum - short
    if group.task_minimums or group.sub_groups or least < 1:
        return text
    return f"{text}, or with {minimum_field(group)} {least}"


def _unfit(
    state: AllocatorState,
    domain: SchedulingDomain,
    found: Membership,
    search: JointSearch,
    selection: Selection,
) -> Reasons:
    """The reasons if no placement was found: those of the first pod without a node, while the other
    pods keep their nodes."""
    what = f"PodGroup {found.group.key} does not fit as a whole"
    detail = f"{selection.count.in_words()} find room together"
    if search.budget.ran_out:
        detail += f"; the search ended after {search.budget.limit} trials"
    head = Reason(_GROUP, what, 0, 0, "group", detail)
    failed = selection.failed
    return (head, *(() if failed is None else explain_pod(state, domain, failed.request)))
