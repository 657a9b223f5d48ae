"""The PodGroups of a domain in one step of its replica: which are pending, and which is decided."""

from dray.api.pods import GroupKey, Pod
from dray_allocator.cycle.step import Step
from dray_allocator.gangs.decision import GroupStarts, GroupWaits, decide_group, undecidable
from dray_allocator.gangs.membership import Membership, membership, order
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.scheduling_queue import QueueKey
from dray_allocator.state.state import AllocatorState


class GroupScheduler:
    """Looks at the groups that were touched, and decides those that are pending."""

    def __init__(self, state: AllocatorState, domain: SchedulingDomain) -> None:
        self._state = state
        self._domain = domain

    def refresh(self, step: Step) -> None:
        """See ``cycle.step.Groups``."""
        groups = self._domain.groups
        touched, groups.touched = groups.touched, {}
        for key in touched:
            self._look(step, key)
        groups.end_backoffs(self._state.facts.now_unix_s)
        if groups.unschedulable and groups.scanned != self._domain.queue.capacity_version:
            self._scan()
        groups.scanned = self._domain.queue.capacity_version

    def first(self) -> QueueKey | None:
        """See ``cycle.step.Groups``."""
        return self._domain.groups.first()

    def schedule(self, step: Step) -> int:
        """See ``cycle.step.Groups``."""
        state, domain = self._state, self._domain
        key = domain.groups.pop()
        step.flush()
        started_us = state.stopwatch()
        found = decide_group(state, domain, key, charges=True)
        match found:
            case GroupStarts(parts=parts):
                domain.groups.remove(key)
                domain.groups.backoffs.pop(key, None)
                step.decide_group(parts, took_us=state.stopwatch() - started_us)
                domain.groups.touch(key)
                return sum(map(len, parts))
            case GroupWaits(reasons=reasons, hint=hint):
                domain.groups.add_unschedulable(key, hint)
                if found.was_long:
                    domain.groups.back_off(key, state.facts.now_unix_s)
                else:
                    domain.groups.backoffs.pop(key, None)
                step.wait(self._pods_that_wait(key), reasons)
            case None:
                domain.groups.remove(key)
        return 1

    def _look(self, step: Step, key: GroupKey) -> None:
        """Find out whether a group is pending, or its pods are decided one by one."""
        domain, groups = self._domain, self._domain.groups
        if domain.name not in self._state.facts.groups.pools(key):
            groups.remove(key)
            return
        if reasons := undecidable(self._state, domain, key):
            groups.remove(key)
            pods = self._pods_that_wait(key)
            self._dequeue(pods)
            step.wait(pods, reasons)
            return
        found = membership(self._state, self._state.facts.groups.groups[key])
        if found.is_met:
            groups.remove(key)
            self._queue(found)
        elif found.in_flight or not found.candidates:
            groups.remove(key)
            self._dequeue(found.candidates)
        else:
            self._dequeue(found.candidates)
            groups.add(key, self._place(found))

    def _scan(self) -> None:
        """Try the groups that may fit after a change of capacity."""
        groups, counters = self._domain.groups, self._domain.groups.counters
        totals: dict[bytes, int] = {}
        for key, hint in tuple(groups.unschedulable.items()):
            counter = counters.get(hint.signature) if hint.signature else None
            if counter is not None and hint.signature not in totals:
                is_current = counter.table is self._state.tables.of(self._domain.name)
                totals[hint.signature] = (
                    counter.catch_up(self._state.selectors) if is_current else hint.slots
                )
            if counter is None or totals[hint.signature] >= hint.slots:
                groups.activate(key)

    def _pods_that_wait(self, key: GroupKey) -> list[Pod]:
        """The group's pods in this domain that wait for a decision, in the order of the queue."""
        facts = self._state.facts
        pods = (facts.pods.get(uid) for uid in facts.groups.members(key))
        found = [
            pod
            for pod in pods
            if pod is not None and pod.pool == self._domain.name and self._state.is_decidable(pod)
        ]
        return sorted(found, key=order)

    def _queue(self, found: Membership) -> None:
        """Let pods above the minimum be decided one by one."""
        queue = self._domain.queue
        for pod in found.candidates:
            key = (-pod.priority, pod.created_unix_s, pod.uid)
            if pod.pool == self._domain.name and queue.pending.get(pod.uid) != key:
                queue.add(pod.uid, key, activate=self._domain.serving)

    def _dequeue(self, pods: list[Pod]) -> None:
        for pod in pods:
            self._domain.queue.remove(pod.uid)

    def _place(self, found: Membership) -> QueueKey:
        """The place of a group: its priority, then the age of its oldest pod that waits."""
        group = found.group
        priority = group.priority
        if priority is None:
            priority = max(pod.priority for pod in found.candidates)
        created = min(pod.created_unix_s for pod in found.candidates)
        return (-priority, created, group.uid)
