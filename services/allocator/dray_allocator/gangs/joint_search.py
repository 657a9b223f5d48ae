"""Searches nodes and devices for pods of a group together.

Pods are placed one after the other, like single pods. If a pod finds no node, the search goes back:
on each node of the group, the pods there and the new pod are searched together, with all their
alternatives, and pods are moved to other nodes. The number of such trials is bounded.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Final

import msgspec

from dray.api.claims import Allocation, Claim
from dray.api.groups import PodGroup
from dray.api.quantities import parse_quantity
from dray_allocator.cycle.records import allocations_of
from dray_allocator.devices.budget import MAX_TRIES_PER_NODE, SearchBudget
from dray_allocator.devices.usage import AssumedResources, plus
from dray_allocator.devices.visible_devices import visible_devices
from dray_allocator.gangs.placements import Member, Placements, Saved
from dray_allocator.gangs.slots import least_amounts
from dray_allocator.nodes.index import NONE, NodeIndex
from dray_allocator.nodes.predicates import fits
from dray_allocator.placement.choice import Choice, Pause
from dray_allocator.placement.class_search import ClassSearch
from dray_allocator.placement.fast_path.table_choice import index_of
from dray_allocator.placement.node_trial import NodeProblem, evaluate_node
from dray_allocator.placement.pod_claims import pod_claims
from dray_allocator.placement.pod_request import PodRequest, without_claims
from dray_allocator.placement.schedule import may_use_other_devices, schedule_pod
from dray_allocator.scoring.policies import by_load
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

_DEEPEST: Final = 3
"""The longest chain of moves: a pod that is moved may displace other pods."""
_NODES_FILLED: Final = 8
"""How many nodes of the group, the last used ones, are tried before other nodes."""
_MEMBERS_PER_TRIAL: Final = 256
"""How many members, checked for shared claims, count as one trial."""


@dataclass(slots=True)
class _Sharers:
    """Members that share claims and are not placed."""

    members: list[Member]
    crowded: dict[str, None] = field(default_factory=dict)
    """Nodes without room for all of them."""


@dataclass(slots=True)
class JointSearch:
    """Places pods of one group; the caller decides which."""

    state: AllocatorState
    domain: SchedulingDomain
    group: PodGroup
    running: Sequence[tuple[str, str]] = ()
    """Tasks of the group's pods that run, and their nodes."""
    sharing: Sequence[Member] = ()
    """Members that may be placed, and share a claim with other pods."""
    budget: SearchBudget = field(init=False)
    """Counts trials of nodes for several pods together."""
    placed: Placements = field(init=False)
    _full: dict[bytes, int] = field(init=False, default_factory=dict)
    """Per kind of pods that found no node, the number of placements at that time. With as many or
    more placements, such a pod finds no node either."""
    _filled: dict[bytes, dict[str, None]] = field(init=False, default_factory=dict)
    """Per kind of pods, nodes of the group that have no room for one, until pods are moved."""
    _sharers: dict[frozenset[str], _Sharers] = field(init=False, default_factory=dict)
    """By the UIDs of shared claims, what is known about the members that share them."""

    def __post_init__(self) -> None:
        self.budget = SearchBudget(self.state.options.group_trials)
        self.placed = Placements(self.state, self.domain)

    def place(self, member: Member) -> bool:
        """Place a member, and move others if need be."""
        if member.is_sharing:
            return self._place_sharing(member)
        kind = member.kind
        if kind and (full := self._full.get(kind)) is not None and full <= len(self.placed):
            return False
        if self._place_alone(member) or self._rearrange(member, 0):
            return True
        if kind:
            self._full[kind] = len(self.placed)
        return False

    def reset(self, saved: Saved) -> None:
        """Return to saved placements."""
        self.placed.reset(saved)
        number = len(saved)
        self._full = {kind: full for kind, full in self._full.items() if full <= number}
        self._filled.clear()
        self._sharers = {}

    def _place_alone(self, member: Member, without: str = "") -> bool:
        choice = self._choice(member, without)
        if choice is None:
            return False
        self.placed.put(member, choice)
        return True

    def _place_sharing(self, member: Member) -> bool:
        """Place a member that shares claims. If placed members have some of these claims, it gets
        the same allocations; else it needs a node with cpu, memory and the like for all members
        that share the claims. It is not moved afterwards."""
        request, excluded = member.request, member.request.excluded
        made = {
            claim.uid: found
            for claim in request.claims
            if (found := self.placed.made_for(claim.uid)) is not None
        }
        rest = without_claims(self.state, self.domain, request, made)
        sharers = self._sharers.get(member.shared)
        if not made and sharers is not None:
            excluded = (*excluded, *sharers.crowded)
        while made or self.budget.take():
            choice = self._schedule(msgspec.structs.replace(rest, excluded=excluded))
            if choice is None:
                return False
            sharers = sharers or self._sharing(member)
            if made or self._has_room_for(sharers, choice.node):
                results = iter(allocations_of(rest, choice))
                both = [
                    made[claim.uid].allocation if claim.uid in made else next(results)
                    for claim in request.claims
                ]
                whole = Choice(choice.node, (), choice.considered_devices, results=tuple(both))
                self.placed.put(member, whole)
                return True
            excluded = (*excluded, choice.node)
        return False

    def _sharing(self, member: Member) -> _Sharers:
        """The members that share a claim with a member, and are not placed."""
        self.budget.spend(len(self.sharing) // _MEMBERS_PER_TRIAL)
        members = [
            one
            for one in self.sharing
            if one not in self.placed and not member.shared.isdisjoint(one.shared)
        ]
        found = self._sharers[member.shared] = _Sharers(members)
        return found

    def _has_room_for(self, sharers: _Sharers, node: str) -> bool:
        """Whether a node has cpu, memory and the like for all of these."""
        fact, assumed = self.state.facts.nodes[node].node, self.state.assumed_pods.on(node)
        are_few = fact.used_pods + assumed.pods + len(sharers.members) <= fact.pods
        if are_few and self._pass_together(node, sharers.members):
            return True
        sharers.crowded[node] = None
        return False

    def _choice(self, member: Member, without: str) -> Choice | None:
        """Try nodes that the group prefers, then nodes that its tasks do not avoid, then all."""
        request = member.request
        may_fit = self._filter(request)
        filled = self._filled.setdefault(member.kind, {}) if member.kind else {}
        for node in self._preferred(member):
            if node == without or node in filled:
                continue
            if not may_fit(node):
                filled[node] = None
                continue
            if (choice := self._schedule(_on(request, (node,)))) is not None:
                return choice
        avoided = tuple(self._avoided(member))
        if avoided or without:
            excluded = (*request.excluded, *avoided, *((without,) if without else ()))
            choice = self._schedule(msgspec.structs.replace(request, excluded=excluded))
            if choice is not None or not avoided:
                return choice
        if without:
            request = msgspec.structs.replace(request, excluded=(*request.excluded, without))
        return self._schedule(request)

    def _schedule(self, request: PodRequest) -> Choice | None:
        choice = schedule_pod(self.state, self.domain, request, None)
        return None if isinstance(choice, Pause) else choice

    def _filter(self, request: PodRequest) -> Callable[[str], bool]:
        """A filter by the node table; all nodes pass if the table can't judge the request."""
        named = request.pattern.named_nodes
        if request.pattern.in_full or not request.ordinary or named is not None:
            return lambda node: named is None or node in named
        index = index_of(self.state, self.domain, request)
        rows = index.table.rows
        return lambda node: (row := rows.get(node)) is not None and index.key(row) != NONE

    def _preferred(self, member: Member) -> Iterator[str]:
        """Nodes of the group, those with most pods of related tasks first, then the last used."""
        others: Iterable[str] = reversed(self.placed.on_node)
        if self.group.affinity or self.group.anti_affinity:
            attraction = {node: self._attraction(member.task, node) for node in self._nodes()}
            related = [node for node, value in attraction.items() if value > 0]
            yield from sorted(related, key=lambda node: -attraction[node])
            others = [node for node in others if not attraction.get(node)]
        pattern = member.request.pattern
        if pattern.needs_devices and by_load(pattern.placement).node_fills:
            yield from islice(others, _NODES_FILLED)

    def _avoided(self, member: Member) -> Iterator[str]:
        """Nodes with pods that the member's task avoids."""
        if self.group.anti_affinity:
            for node in self._nodes():
                if self._attraction(member.task, node) < 0:
                    yield node

    def _nodes(self) -> list[str]:
        """Nodes with pods of the group; the last used node comes last."""
        if not (self.group.affinity or self.group.anti_affinity):
            return list(self.placed.on_node)
        return list(dict.fromkeys((*(node for _, node in self.running), *self.placed.on_node)))

    def _attraction(self, task: str, node: str) -> int:
        """The number of the group's pods on a node to which the task has affinity, minus those to
        which it has anti-affinity."""
        group = self.group
        if not (group.affinity or group.anti_affinity):
            return 0
        there = [one.task for one in self.placed.on_node.get(node, {}).values()]
        there += [other for other, where in self.running if where == node]
        liked = sum(_are_paired(group.affinity, task, other) for other in there)
        return liked - sum(_are_paired(group.anti_affinity, task, other) for other in there)

    def _rearrange(self, member: Member, depth: int) -> bool:
        """Make room for a member on a node of the group: search the node again for the member and
        the group's pods there together, then move some of these pods to other nodes."""
        nodes = [
            node
            for node, there in reversed(self.placed.on_node.items())
            if not any(one.is_sharing for one in there.values())
        ]
        for node in nodes:
            if self._place_together(node, list(self.placed.on_node[node].values()), member):
                return True
        if depth >= _DEEPEST:
            return False
        for node in nodes:
            there = list(self.placed.on_node[node].values())
            for moved in _movable(there, member):
                if self._replace(node, there, moved, member, depth):
                    return True
        return False

    def _replace(
        self,
        node: str,
        there: Sequence[Member],
        moved: Sequence[Member],
        member: Member,
        depth: int,
    ) -> bool:
        """Place a member on a node in place of other members, which move to other nodes."""
        saved = self.placed.save()
        self._filled.clear()
        self.placed.take(moved)
        others = [one for one in there if one not in moved]
        if self._place_together(node, others, member) and all(
            self._place_alone(one, without=node) or self._rearrange(one, depth + 1) for one in moved
        ):
            return True
        self.placed.reset(saved)
        self._filled.clear()
        return False

    def _place_together(self, node: str, others: Sequence[Member], member: Member) -> bool:
        """Search the devices of a node for a member and the group's pods there, as for one pod."""
        if not self.budget.take() or self._exceeds(node, others, member):
            return False
        saved = self.placed.save()
        self._filled.clear()
        self.placed.take(others)
        members = (*others, member)
        results = self._search_node(node, members)
        if results is None:
            self.placed.reset(saved)
            return False
        at = 0
        for one in members:
            until = at + len(one.request.claims)
            choice = Choice(node, (), self._devices(), results=results[at:until])
            self.placed.put(one, choice)
            at = until
        return True

    def _exceeds(self, node: str, others: Sequence[Member], member: Member) -> bool:
        """Whether these pods ask for more of a capacity than the node's devices have, so a search
        is useless."""
        if may_use_other_devices(self.state, member.request):
            return False
        asked: dict[str, int] = {}
        for claim in {claim.uid: claim for claim in _claims_of((*others, member))}.values():
            for name, amount in least_amounts(claim.spec).items():
                asked[name] = asked.get(name, 0) + amount.nano
        return any(amount > self._left(node, name, others) for name, amount in asked.items())

    def _left(self, node: str, name: str, others: Sequence[Member]) -> float:
        """The node's free capacity once these pods release theirs; infinite if it is unknown."""
        usage, totals = self.state.device_usage, 0
        cards = [one for one in self.state.published.of(node).cards if name in one.shape.totals]
        for card in cards:
            totals += max(0, card.shape.totals[name] - usage.of(card.id).used.get(name, 0))
        for claim in _claims_of(others):
            for share in usage.of_claim(claim.uid):
                if name not in share.consumed:
                    return inf
                totals += parse_quantity(share.consumed[name]).nano
        return totals if cards else inf

    def _search_node(self, node: str, members: Sequence[Member]) -> tuple[Allocation, ...] | None:
        """Devices for the claims of all members together; None if they do not fit."""
        state, first = self.state, members[0].request
        if any(not _allows(one.request, node) for one in members):
            return None
        if not self._pass_together(node, members):
            return None
        claims = tuple(claim for one in members for claim in one.request.claims)
        request = msgspec.structs.replace(first, claims=claims)
        index = self._index(first)
        problem = NodeProblem(
            state,
            request,
            pod_claims(state, request),
            index.table,
            index.score,
            state.facts.nodes[node].node,
            visible_devices(state.published, state.device_usage, node),
        )
        found = evaluate_node(problem, MAX_TRIES_PER_NODE)
        return found.results if found.feasibility.is_feasible else None

    def _index(self, request: PodRequest) -> NodeIndex:
        if request.pattern.in_full:
            return ClassSearch(self.state, self.domain, request).index
        return index_of(self.state, self.domain, request)

    def _pass_together(self, node: str, members: Sequence[Member]) -> bool:
        """Whether the node has cpu, memory and the like for all of them."""
        state, fact = self.state, self.state.facts.nodes[node].node
        assumed = state.assumed_pods.on(node)
        for member in members:
            needs, alone = member.pod.needs, member.request.pattern.alone
            if not fits(needs, fact, assumed, alone=alone, given=state.facts.given):
                return False
            more = AssumedResources(
                needs.cpu_milli, needs.memory_bytes, 1, needs.resources, needs.ports
            )
            assumed = plus(assumed, more)
        return True

    def _devices(self) -> int:
        return self.state.tables.of(self.domain.name).cards


def _on(request: PodRequest, nodes: tuple[str, ...]) -> PodRequest:
    named = request.pattern.named_nodes
    allowed = nodes if named is None else tuple(node for node in nodes if node in named)
    pattern = msgspec.structs.replace(request.pattern, named_nodes=allowed)
    return msgspec.structs.replace(request, pattern=pattern)


def _allows(request: PodRequest, node: str) -> bool:
    if node in request.excluded or (request.fixed_node and request.fixed_node != node):
        return False
    named = request.pattern.named_nodes
    return not request.reach and (named is None or node in named)


def _claims_of(members: Iterable[Member]) -> Iterator[Claim]:
    return (claim for one in members for claim in one.request.claims)


def _movable(there: Sequence[Member], member: Member) -> Iterator[list[Member]]:
    """Which pods to move for another pod: one of each kind, then more and more pods, the smallest
    first. Pods of its own kind are not moved: they would find no other node, either."""
    others = [one for one in there if not member.kind or one.kind != member.kind]
    kinds: dict[object, Member] = {}
    for one in others:
        kinds.setdefault(one.kind or one.pod.uid, one)
    yield from ([one] for one in kinds.values())
    by_size = sorted(others, key=lambda one: one.size)
    for number in range(2, len(by_size) + 1):
        yield by_size[:number]


def _are_paired(sets: Sequence[Sequence[str]], task: str, other: str) -> bool:
    """Whether two tasks are in one set. A task is paired with itself only by a set of its own."""
    if task == other:
        return any(tuple(one) == (task,) for one in sets)
    return any(task in one and other in one for one in sets)
