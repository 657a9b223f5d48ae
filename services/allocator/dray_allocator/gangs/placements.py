"""Placements of a group's pods during a search: each is charged, and can be undone."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from dray.api.pods import Pod
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_allocator.cycle.records import decision_of
from dray_allocator.placement.choice import Choice
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a group that is to be placed."""

    request: PodRequest
    size: int
    """Devices that it asks for."""
    shared: frozenset[str] = frozenset()
    """UIDs of its claims to which other pods refer."""
    kind: bytes = field(init=False, compare=False)
    """Equal for members that fit the same nodes; empty if the member is like no other."""

    def __post_init__(self) -> None:
        is_like_others = self.request.ordinary and not self.shared
        object.__setattr__(self, "kind", self.request.pattern.signature if is_like_others else b"")

    @property
    def is_sharing(self) -> bool:
        """Whether other pods refer to one of its claims."""
        return bool(self.shared)

    @property
    def pod(self) -> Pod:
        """The pod."""
        return self.request.pod

    @property
    def task(self) -> str:
        """The pod's task."""
        return self.pod.member.task if self.pod.member is not None else ""


Saved = dict[str, tuple[Member, PodDecision]]
"""Placements by pod UID."""


class Placements:
    """The members that are placed, in order, with their decisions."""

    def __init__(self, state: AllocatorState, domain: SchedulingDomain) -> None:
        self._state = state
        self._domain = domain
        self._placed: Saved = {}
        self.on_node: dict[str, dict[str, Member]] = {}
        """By node and pod UID; the last used node comes last."""
        self._holders: dict[str, dict[str, ClaimDecision]] = {}
        """By claim and pod UID, the decision on a claim: the same for all pods of the claim."""

    def __len__(self) -> int:
        return len(self._placed)

    def __contains__(self, member: Member) -> bool:
        return member.pod.uid in self._placed

    def put(self, member: Member, choice: Choice) -> None:
        """Place a member."""
        decision = decision_of(self._domain, member.request, choice)
        self._put(member, decision)

    def made_for(self, claim_uid: str) -> ClaimDecision | None:
        """The decision on a claim of placed pods; None if no pod that uses the claim is placed."""
        return next(iter(self._holders.get(claim_uid, {}).values()), None)

    def _put(self, member: Member, decision: PodDecision) -> None:
        uid, node = decision.pod_uid, decision.node
        self._state.charge(self._own(member, decision))
        for claim in decision.claims if member.is_sharing else ():
            self._holders.setdefault(claim.uid, {})[uid] = claim
        self._placed[uid] = member, decision
        there = self.on_node.pop(node, {})
        there[uid] = member
        self.on_node[node] = there

    def take(self, members: Iterable[Member]) -> None:
        """Undo placements."""
        for member in members:
            uid = member.pod.uid
            _, decision = self._placed.pop(uid)
            for claim in decision.claims if member.is_sharing else ():
                del self._holders[claim.uid][uid]
            self._state.undo_charge(self._own(member, decision))
            there = self.on_node[decision.node]
            del there[uid]
            if not there:
                del self.on_node[decision.node]

    def _own(self, member: Member, decision: PodDecision) -> PodDecision:
        """A decision without the claims that other placed pods also have: these are charged
        already, or stay charged."""
        if not member.is_sharing:
            return decision
        own = tuple(claim for claim in decision.claims if not self._holders.get(claim.uid))
        return msgspec.structs.replace(decision, claims=own)

    def save(self) -> Saved:
        """The current placements, for ``reset``."""
        return dict(self._placed)

    def reset(self, saved: Saved) -> None:
        """Return to saved placements."""
        changed = [one for uid, one in self._placed.items() if saved.get(uid) is not one]
        self.take([member for member, _ in changed])
        for uid, (member, decision) in saved.items():
            if uid not in self._placed:
                self._put(member, decision)
        self._placed = dict(saved)

    def decisions(self) -> list[PodDecision]:
        """The decisions, in the order in which members were placed."""
        return [decision for _, decision in self._placed.values()]

    def requests(self) -> tuple[PodRequest, ...]:
        """The requests of the members that are placed."""
        return tuple([member.request for member, _ in self._placed.values()])
