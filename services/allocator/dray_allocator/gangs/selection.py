"""Chooses which members of a group are placed, so that its minimum is met: first subgroups as a
whole, then tasks, then any members. In each step, pods that are hardest to place come first."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dray.api.groups import GroupCount
from dray_allocator.gangs.joint_search import JointSearch
from dray_allocator.gangs.membership import Membership, count_pod
from dray_allocator.gangs.placements import Member


@dataclass(slots=True)
class Selection:
    """Places members until the minimum is met."""

    search: JointSearch
    members: Membership
    waiting: list[Member]
    """Members that may be placed, in the order of the queue."""
    count: GroupCount = field(init=False)
    """Members that run, would run, or need no devices."""
    failed: Member | None = field(init=False, default=None)
    """The first needed member that found no node."""

    def __post_init__(self) -> None:
        self.count = GroupCount(self.members.group)
        for pod in (*(one for one, _ in self.members.nodes), *self.members.riders):
            count_pod(self.count, pod)

    def run(self) -> bool:
        """Whether the minimum is met; else nothing is placed."""
        return self._subgroups() and self._tasks() and self._rest()

    def _subgroups(self) -> bool:
        for at, lacking in self.count.lacking_subgroups.items():
            for block in self._blocks(at):
                if lacking == 0:
                    break
                lacking -= self._place_all(block)
            if lacking:
                return False
        return True

    def _blocks(self, at: int) -> Iterator[list[Member]]:
        """Per subgroup of a policy that can be completed, the members that it lacks; subgroups that
        lack the fewest members come first."""
        policy, blocks = self.members.group.sub_groups[at], dict[str, list[Member]]()
        for member in self.waiting:
            assert member.pod.member is not None
            subgroup = policy.subgroup_of(member.pod.member.labels)
            if subgroup is not None:
                blocks.setdefault(subgroup, []).append(member)
        lacks = {name: policy.size - self.count.subgroup(at, name) for name in blocks}
        for name in sorted(blocks, key=lambda one: (lacks[one], len(one), one)):
            if 0 < lacks[name] <= len(blocks[name]):
                yield blocks[name][: lacks[name]]

    def _place_all(self, block: list[Member]) -> bool:
        """Place all of these, or none."""
        before = self.search.placed.save()
        for number, member in enumerate(_hardest_first(block)):
            if not self.search.place(member):
                self.failed = self.failed or member
                self.search.reset(before)
                for undone in _hardest_first(block)[:number]:
                    self._count(undone, -1)
                    self.waiting.append(undone)
                return False
            self._count(member, 1)
            self.waiting.remove(member)
        return True

    def _tasks(self) -> bool:
        lacking = self.count.lacking_tasks
        first = {task: at for at, task in enumerate(self.members.group.task_order)}
        for task in sorted(lacking, key=lambda one: (first.get(one, len(first)), one)):
            of_task = [member for member in self.waiting if member.task == task]
            if not self._place_some(of_task, lacking[task]):
                return False
        return True

    def _rest(self) -> bool:
        return self._place_some(self.waiting, self.count.lacks)

    def _place_some(self, members: Iterable[Member], number: int) -> bool:
        """Place ``number`` of these members."""
        for member in _hardest_first(members):
            if number <= 0:
                break
            if self.search.place(member):
                self._count(member, 1)
                self.waiting.remove(member)
                number -= 1
            else:
                self.failed = self.failed or member
        return number <= 0

    def _count(self, member: Member, number: int) -> None:
        count_pod(self.count, member.pod, number)


def _hardest_first(members: Iterable[Member]) -> list[Member]:
    """Sort by number of devices, most first; equal ones stay in the order of the queue."""
    return sorted(members, key=lambda member: -member.size)
