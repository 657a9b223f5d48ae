"""The members of a PodGroup, by their state: a function of facts and logs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dray.api import names
from dray.api.groups import GroupCount, PodGroup
from dray.api.pods import GroupKey, Pod
from dray_allocator.state.state import AllocatorState


@dataclass(slots=True)
class Membership:
    """The members of a group that exist and have not failed."""

    group: PodGroup
    running: GroupCount
    """Members that are bound, that kube-scheduler may bind, or that have succeeded."""
    nodes: list[tuple[Pod, str]] = field(default_factory=list)
    """Running members with their nodes."""
    in_flight: int = 0
    """Members that have devices and do not run yet."""
    candidates: list[Pod] = field(default_factory=list)
    """Members that can be decided, in the order of the queue."""
    riders: list[Pod] = field(default_factory=list)
    """Members that need no devices: they start when the group does."""
    gated: int = 0
    """Members with another scheduling gate or a suspended owner."""
    incomplete: int = 0
    """Members that lack a claim."""

    @property
    def is_met(self) -> bool:
        """Whether enough members run."""
        return not self.group.is_gang or self.running.is_met

    def available(self) -> GroupCount:
        """The count as if all members that can be decided or need no devices were running."""
        count = GroupCount(self.group)
        for pod in (*(one for one, _ in self.nodes), *self.candidates, *self.riders):
            count_pod(count, pod)
        return count


def membership(state: AllocatorState, group: PodGroup) -> Membership:
    """The members of a group."""
    found = Membership(group, GroupCount(group))
    for pod in _members(state, group.key):
        _sort_in(state, found, pod)
    found.candidates.sort(key=order)
    return found


def order(pod: Pod) -> tuple[int, float, str, str]:
    """The place of a pod among the members of its group: pods of one job that are created in the
    same second keep the order of their names."""
    return -pod.priority, pod.created_unix_s, pod.name, pod.uid


def priority_of(group: PodGroup, pods: Iterable[Pod]) -> int:
    """The group's priority: its own, else the highest of these pods."""
    own = group.priority
    return max(pod.priority for pod in pods) if own is None else own


def count_pod(count: GroupCount, pod: Pod, number: int = 1) -> None:
    """Count a member."""
    assert pod.member is not None
    count.add(pod.member.task, pod.member.labels, number)


def _members(state: AllocatorState, key: GroupKey) -> Iterator[Pod]:
    for uid in state.facts.groups.members(key):
        if (pod := state.facts.pods.get(uid)) is not None:
            yield pod


def _sort_in(state: AllocatorState, found: Membership, pod: Pod) -> None:
    if pod.phase == "Succeeded":
        count_pod(found.running, pod)
        found.nodes.append((pod, pod.node))
    elif pod.phase == "Failed" or pod.deleting:
        return
    elif node := _node_of(state, pod):
        count_pod(found.running, pod)
        found.nodes.append((pod, node))
    elif pod.other_gates:
        found.gated += 1
    elif not (claims := state.facts.claims_of(pod)):
        if claims is None:
            found.incomplete += 1
        else:
            found.riders.append(pod)
    elif any(one.allocation is not None or state.is_claimed(one) for one in claims):
        found.in_flight += 1
    elif state.may_be_decided(pod):
        found.candidates.append(pod)
    else:
        found.incomplete += 1


def _node_of(state: AllocatorState, pod: Pod) -> str:
    """The node of a member that counts as running in dray's decisions; empty if it does not.

    Once its gate is removed, a pod that kube-scheduler binds will run on the node of its devices.
    """
    if pod.node or pod.binder == names.OWNER_DRAY or pod.gated:
        return pod.node
    claims = state.facts.claims_of(pod) or ()
    allocations = [claim.allocation for claim in claims if claim.allocation is not None]
    return allocations[0].node if allocations and len(allocations) == len(claims) else ""
