"""The PodGroups of a domain in one step of its replica: which are pending, and which is decided."""

from typing import Final

import msgspec

from dray.api.pods import GroupKey, Pod
from dray_allocator.cycle.step import Step
from dray_allocator.gangs.decision import (
    GroupStarts,
    GroupWaits,
    decide_group,
    lacking_pods,
    undecidable,
)
from dray_allocator.gangs.long_waits import expired_node_hold, next_node_hold
from dray_allocator.gangs.lost_members import group_hold_for, group_hold_now, running_members
from dray_allocator.gangs.membership import Membership, membership, order, priority_of
from dray_allocator.gangs.resources import FreeResources
from dray_allocator.placement.holds import (
    Claimant,
    changed_group_holds,
    ended_node_hold,
    may_use,
)
from dray_allocator.placement.learned_policy import learn_from
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.scheduling_queue import QueueKey
from dray_allocator.state.state import AllocatorState

_LARGE: Final = 64
"""A group with this many pods or more is looked at with each tick, not for each of its pods."""


class GroupScheduler:
    """Looks at the groups that were touched, and decides those that are pending."""

    def __init__(self, state: AllocatorState, domain: SchedulingDomain) -> None:
        self._state = state
        self._domain = domain

    def refresh(self, step: Step) -> None:
        """See ``cycle.step.Groups``."""
        groups = self._domain.groups
        if self._domain.ticked:
            groups.touched |= groups.postponed
            groups.postponed.clear()
        touched, groups.touched = groups.touched, {}
        for key in touched:
            if not self._domain.ticked and self._may_postpone(key):
                groups.postponed[key] = None
            else:
                self._look(step, key)
        self._end_group_holds(step)
        self._hold_nodes(step)
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
        priority = -domain.groups.pending[key][0]
        started_us = state.stopwatch()
        found = decide_group(state, domain, key, charges=True)
        match found:
            case GroupStarts(parts=parts, requests=requests):
                domain.groups.remove(key)
                domain.groups.backoffs.pop(key, None)
                decisions = [pod for part in parts for pod in part]
                who = Claimant(key, priority)
                ended = ended_node_hold(domain, decisions, who)
                step.put_holds(changed_group_holds(domain, decisions, who), ended)
                step.decide_group(parts, took_us=state.stopwatch() - started_us)
                learn_from(state, domain, requests)
                domain.groups.touch(key)
                return sum(map(len, parts))
            case GroupWaits(reasons=reasons, hint=hint):
                domain.groups.add_unschedulable(key, hint)
                uid = domain.groups.pending[key][2]
                recorded = map(domain.current.waiting.get, state.facts.groups.members(key))
                domain.groups.long_waits.note(uid, recorded, state.facts.now_unix_s)
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
        groups.incomplete.pop(key, None)
        if domain.name not in self._state.facts.groups.pools(key):
            groups.forget(key)
            return
        if reasons := undecidable(self._state, domain, key):
            groups.remove(key)
            pods = self._pods_that_wait(key)
            self._dequeue(pods)
            step.wait(pods, reasons)
            return
        found = membership(self._state, self._state.facts.groups.groups[key])
        self._update_group_hold(step, found)
        groups.starting.pop(key, None)
        if found.in_flight and not found.is_met:
            groups.starting[key] = None
        if found.is_met:
            groups.remove(key)
            self._queue(found)
        elif found.in_flight or not found.candidates:
            groups.remove(key)
            self._dequeue(found.candidates)
        elif reasons := lacking_pods(domain, found):
            groups.remove(key)
            groups.incomplete[key] = None
            self._dequeue(found.candidates)
            step.wait(self._pods_that_wait(key), reasons)
        else:
            self._dequeue(found.candidates)
            groups.add(key, self._place(found))

    def _scan(self) -> None:
        """Try the groups that may fit after a change of capacity."""
        groups, counters = self._domain.groups, self._domain.groups.counters
        totals: dict[bytes, int] = {}
        free = FreeResources(self._state, self._domain)
        for key, hint in tuple(groups.unschedulable.items()):
            if hint.refused_at == self._state.requirements_version:
                continue  # No capacity helps.
            counter = counters.get(hint.signature) if hint.signature else None
            if counter is not None and hint.signature not in totals:
                is_current = counter.table is self._state.tables.of(self._domain.name)
                totals[hint.signature] = (
                    counter.catch_up(self._state.selectors) if is_current else hint.slots
                )
            is_enough = counter is None or totals[hint.signature] >= hint.slots
            if hint.resource:
                is_enough = free.most_nano(hint.resource) >= hint.resource_nano
            if is_enough or self._may_use_holds(key):
                groups.activate(key)

    def _may_postpone(self, key: GroupKey) -> bool:
        """Whether a large group can't be decided now: it still lacks pods, or it is starting. If
        each pod that is created or bound caused a look at all pods, the cost would grow with the
        square of their number."""
        groups, size = self._state.facts.groups, self._state.facts.groups.size(key)
        group = groups.groups.get(key)
        if group is None or group.blocked or size < _LARGE:
            return False
        if key in self._domain.groups.starting:
            return True
        if size >= group.minimum:
            return False
        return key not in self._domain.groups.running and (
            group.uid not in self._domain.current.group_holds
        )

    def _may_use_holds(self, key: GroupKey) -> bool:
        """Whether a group may use held devices or nodes, which no counter counts as free."""
        if not (self._domain.current.group_holds or self._domain.current.node_hold):
            return False
        who, log = Claimant(key, -self._domain.groups.pending[key][0]), self._domain.current
        nodes = log.node_hold
        return any(may_use(hold, who) for hold in log.group_holds.values()) or (
            nodes is not None and may_use(nodes, who)
        )

    def _end_group_holds(self, step: Step) -> None:
        """End holds whose time is over, whose group is gone, or whose nodes left the pool."""
        for hold in tuple(self._domain.current.group_holds.values()):
            left = group_hold_now(self._state, self._domain, hold)
            if not left.claims:
                self._domain.groups.running.pop(hold.group, None)
                self._domain.groups.touch(hold.group)  # Its reasons name the hold.
            if left != hold:
                step.put_holds((left,))

    def _hold_nodes(self, step: Step) -> None:
        """Hold nodes for a pod or group that has waited long, or end such a hold."""
        state, domain = self._state, self._domain
        if (ended := expired_node_hold(state, domain)) is not None:
            step.put_holds(node_hold=ended)
        if domain.ticked and (hold := next_node_hold(state, domain)) is not None:
            step.put_holds(node_hold=hold)
        hold = domain.current.node_hold
        if hold is not None and domain.queue.must_scan:
            domain.queue.activate(hold.uid)

    def _update_group_hold(self, step: Step, found: Membership) -> None:
        """Hold the devices of pods that the group has lost, or end its hold."""
        key, running = found.group.key, self._domain.groups.running
        before, holds = running.pop(key, {}), self._domain.current.group_holds
        hold = holds.get(found.group.uid)
        if not found.group.is_gang or not (found.is_met or before or hold):
            return
        now = running_members(self._state, found, before)
        held = group_hold_for(self._state, found, before, now, holds)
        if found.is_met or held is not None:
            running[key] = now
        if held is not None and held != hold:
            step.put_holds((held,))
        elif held is None and hold is not None:
            step.put_holds((msgspec.structs.replace(hold, claims=()),))

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
        priority = priority_of(found.group, found.candidates)
        created = min(pod.created_unix_s for pod in found.candidates)
        return (-priority, created, found.group.uid)
