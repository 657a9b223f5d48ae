"""Placements of a group's pods while they are searched: each is charged, and can be undone."""

from collections.abc import Iterable
from dataclasses import dataclass

from dray.api.pods import Pod
from dray.messages.decisions import PodDecision
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

    @property
    def pod(self) -> Pod:
        """The pod."""
        return self.request.pod

    @property
    def task(self) -> str:
        """The pod's task."""
        return self.pod.member.task if self.pod.member is not None else ""

    @property
    def kind(self) -> bytes:
        """Equal for members that fit the same nodes; empty: like no other."""
        return self.request.signature if self.request.ordinary else b""


class Placements:
    """The members that are placed, in order, with their decisions."""

    def __init__(self, state: AllocatorState, domain: SchedulingDomain) -> None:
        self._state = state
        self._domain = domain
        self._placed: dict[str, tuple[Member, PodDecision]] = {}
        self.on_node: dict[str, dict[str, Member]] = {}
        """By node and pod UID; the node used last is the last."""

    def __len__(self) -> int:
        return len(self._placed)

    def put(self, member: Member, choice: Choice) -> None:
        """Place a member."""
        decision = decision_of(self._domain, member.request, choice)
        self._put(member, decision)

    def _put(self, member: Member, decision: PodDecision) -> None:
        self._state.charge(decision)
        uid, node = decision.pod_uid, decision.node
        self._placed[uid] = member, decision
        there = self.on_node.pop(node, {})
        there[uid] = member
        self.on_node[node] = there

    def take(self, members: Iterable[Member]) -> list[tuple[Member, PodDecision]]:
        """Undo placements; return them, for ``restore``."""
        taken = []
        for member in members:
            uid = member.pod.uid
            taken.append(self._placed.pop(uid))
            node = taken[-1][1].node
            self._state.discharge(taken[-1][1])
            del self.on_node[node][uid]
            if not self.on_node[node]:
                del self.on_node[node]
        return taken

    def of(self, members: Iterable[Member]) -> list[tuple[Member, PodDecision]]:
        """The placements of members, for ``restore``."""
        return [self._placed[member.pod.uid] for member in members]

    def restore(self, taken: Iterable[tuple[Member, PodDecision]]) -> None:
        """Place members again as they were."""
        for member, decision in taken:
            self._put(member, decision)

    def undo_to(self, number: int) -> None:
        """Undo all placements but the first ones."""
        members = [member for member, _ in self._placed.values()]
        self.take(reversed(members[number:]))

    def decisions(self) -> list[PodDecision]:
        """The decisions, in the order in which members were placed."""
        return [decision for _, decision in self._placed.values()]
