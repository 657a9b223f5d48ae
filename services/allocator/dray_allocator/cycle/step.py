"""One step of a serving replica: end reservations, then schedule active pods."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from dray.api.pods import Pod
from dray.messages.decisions import AnyRecord, GroupHold, NodeHold, PodDecision, Waiting
from dray.reasons import Reason
from dray_allocator.cycle import records
from dray_allocator.cycle.ended_reservations import due_releases, leaving
from dray_allocator.cycle.records import Reasons, decision_of, size_bytes, too_large
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.explain.pods import explain_pod
from dray_allocator.placement.choice import Pause
from dray_allocator.placement.class_search import STEP_LOOKS
from dray_allocator.placement.holds import changed_group_holds, claimant, ended_node_hold, is_own
from dray_allocator.placement.learned_policy import is_due, observe, relearn
from dray_allocator.placement.pod_request import PodRequest, wanted
from dray_allocator.placement.schedule import may_fit, schedule_pod
from dray_allocator.placement.scores import keep_scores
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.scheduling_queue import NO_HINT, QueueKey
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import Append, Effect, Send

_CARDS_PER_TICK = 1_000_000
"""Cards compared per tick to recompute the reasons of pending pods: some tenths of a second."""

_PODS_PER_RECORD_SINCE = 16
"""A checkpoint is written only after more than one record per this many pods with devices."""


class Groups(Protocol):
    """The PodGroups of a domain, whose pods are decided together."""

    def refresh(self, step: "Step") -> None:
        """Look at the groups that changed, and at those that may fit now."""

    def first(self) -> QueueKey | None:
        """The place of the first group to be tried; None if there is none."""

    def schedule(self, step: "Step") -> int:
        """Decide the first group; return the number of searches."""


class Step:
    """What one domain appends and sends in answer to one event."""

    def __init__(
        self,
        state: AllocatorState,
        domain: SchedulingDomain,
        *,
        goes_on: bool = False,
        groups: Groups | None = None,
    ) -> None:
        """``goes_on``: no event is waiting, so paused searches may continue. ``groups``: None if
        there are none."""
        self._groups = groups
        self.effects: list[Effect] = []
        self._goes_on = goes_on
        self._budget = SearchBudget(STEP_LOOKS)
        self._state = state
        self._domain = domain
        self._batch: list[PodDecision] = []
        self._batch_bytes = 0
        self._waits: dict[Reasons, list[Pod]] = {}
        """Pods whose reasons are to be recorded, in the state without the batch."""
        self._repeats: bool | None = None
        """Whether this step may record changed reasons of pods without a signature; None: not
        asked yet."""

    def take(self) -> list[Effect]:
        """End reservations, schedule, write a checkpoint if due; return the effects in order."""
        domain = self._domain
        if domain.settle or domain.to_settle or domain.ticked:
            self._settle()
        self._schedule_active()
        if domain.ticked:
            domain.ticked = False
            self._checkpoint()
        return self.effects

    def _settle(self) -> None:
        domain, state = self._domain, self._state
        releases, wishes = due_releases(state, domain, domain.ticked)
        self.effects += [Send(command) for command in wishes]
        if releases:
            self._append(records.released(state, domain, releases))
        for node, revision in tuple(leaving(state, domain)):
            self._append(records.node_left(state, domain, node, revision))
        if domain.ticked:
            self._report_stale_reasons()
            again = (*domain.queue.deferred_reasons, *self._pods_of_excluded())
            domain.queue.deferred_reasons.clear()
            for pod_uid in again:
                domain.queue.activate(pod_uid)
                pod = state.facts.pods.get(pod_uid)
                if pod is not None and pod.member is not None:
                    domain.groups.touch(pod.member.group)

    def _pods_of_excluded(self) -> list[str]:
        """Pods that wait until a node is no longer excluded."""
        claims = (self._state.facts.claims.get(uid) for uid in self._domain.current.excluded)
        return [claim.pod_uid for claim in claims if claim is not None and not claim.allocation]

    def _schedule_active(self) -> None:
        state, queue = self._state, self._domain.queue
        if self._groups is not None:
            self._groups.refresh(self)
        if queue.must_scan:
            self._scan()
            queue.end_scan()
        if self._goes_on:
            queue.resume_paused()
        searches, options, appended = 0, state.options, self._domain.appended
        while searches < options.searches_per_step and len(appended) < options.unconfirmed_records:
            if self._groups is not None and self._is_next(self._groups):
                searches += self._groups.schedule(self)
            elif not queue.active:
                break
            elif uid := queue.pop():
                searches += self._schedule(state.facts.pods[uid])
            if len(self._batch) >= options.pods_per_record:
                self.flush()
        self.flush()

    def _is_next(self, groups: Groups) -> bool:
        """Whether a group comes before the first active pod."""
        group, pod = groups.first(), self._domain.queue.first_active
        return group is not None and (pod is None or group < pod)

    def decide_group(self, parts: Sequence[tuple[PodDecision, ...]], *, took_us: int) -> None:
        """Write the decision on a group. Its nodes and devices are charged already."""
        self.flush()
        timed = [
            tuple(msgspec.structs.replace(pod, took_us=took_us // len(part)) for pod in part)
            for part in parts
        ]
        for part in timed:
            for decision in part:
                self._state.assume(self._domain, decision, is_charged=True)
        for record in records.decided_group(self._state, self._domain, timed):
            self._domain.current.fold_counted(self._next(record), record)

    def put_holds(
        self, holds: tuple[GroupHold, ...] = (), node_hold: NodeHold | None = None
    ) -> None:
        """Write what is held from now on. ``node_hold``: None if it does not change."""
        state, domain = self._state, self._domain
        if not holds and node_hold is None:
            return
        self.flush()
        before = domain.current.node_hold
        if before is not None and node_hold is not None:
            nodes = len(state.facts.served_nodes(domain.name))
            domain.groups.long_waits.rest(before, nodes, state.facts.now_unix_s)
        self._append(records.released(state, domain, (), holds, node_hold))

    def wait(self, pods: Sequence[Pod], reasons: Reasons) -> None:
        """Record why pods are pending, if that changed."""
        for pod in pods:
            self._wait(pod, reasons, is_hinted=True)

    def _scan(self) -> None:
        """After a change of capacity, activate the pods that may fit now.

        The reasons of the others may have changed; they are recorded with the next tick.
        """
        queue = self._domain.queue
        if queue.activates_all:
            queue.move_all_to_active()
            return
        while queue.first_unschedulable(NO_HINT) is not None:
            queue.activate_next(NO_HINT)
        for signature in queue.unschedulable_signatures():
            first = queue.first_unschedulable(signature)
            if first is not None:
                queue.stale_reasons[signature] = None
                if self._may_fit(signature, self._state.facts.pods[first]):
                    queue.activate_next(signature)

    def _may_fit(self, signature: bytes, pod: Pod) -> bool:
        """Whether a node may fit the pods of a signature; ``pod`` is one of them."""
        want = wanted(self._state, self._domain.name, pod)
        if (
            not isinstance(want, PodRequest)
            or not want.ordinary
            or want.pattern.signature != signature
        ):
            return True
        return may_fit(self._state, self._domain, want)

    def _report_stale_reasons(self) -> None:
        """Record the changed reasons of waiting pods again, by signature.

        Reasons need a comparison of every card, so in a large pool some wait for a later tick.
        """
        domain, queue = self._domain, self._domain.queue
        cards = self._state.tables.of(domain.name).cards
        for signature in tuple(queue.stale_reasons)[: max(1, _CARDS_PER_TICK // max(1, cards))]:
            del queue.stale_reasons[signature]
            first = queue.first_unschedulable(signature)
            if first is None:
                continue
            if (reasons := self._reasons_of_waiting(first)) is None:
                queue.stale_reasons[signature] = None
                queue.activate_next(signature)
                continue
            uid = first
            if self._is_recorded(first, reasons):  # Perhaps only this pod: it was tried again.
                others = queue.unschedulable(signature)
                uid = next((one for one in others if not self._is_recorded(one, reasons)), "")
            if not uid:
                continue
            recorded = domain.current.waiting.get(uid)
            if recorded is None or (
                self._is_news(recorded, reasons) and self._may_report(signature)
            ):
                for one in queue.unschedulable(signature):
                    if not self._is_recorded(one, reasons):
                        self._waits.setdefault(reasons, []).append(self._state.facts.pods[one])
                self._flush_waits()
            else:
                queue.stale_reasons[signature] = None  # Later: only counts changed, or too often.

    def _is_recorded(self, uid: str, reasons: Reasons) -> bool:
        """Whether these are the last recorded reasons of a pod."""
        known = self._domain.current.waiting.get(uid)
        return known is not None and known.reasons == reasons

    def _reasons_of_waiting(self, uid: str) -> tuple[Reason, ...] | None:
        """Why a pod fits nowhere now; None if it fits, or if that is not known yet."""
        want = wanted(self._state, self._domain.name, self._state.facts.pods[uid])
        if not isinstance(want, PodRequest):
            return want
        if schedule_pod(self._state, self._domain, want, self._budget) is not None:
            return None
        return self._reasons(want)

    def _may_repeat(self) -> bool:
        """Whether this step may record changed reasons of pods without a signature."""
        if self._repeats is None:
            self._repeats = self._may_report(NO_HINT)
        return self._repeats

    def _may_report(self, signature: bytes) -> bool:
        now_unix_s, every_s = self._state.facts.now_unix_s, self._state.options.waiting_repeat_s
        return self._domain.queue.take_report(signature, now_unix_s, every_s=every_s)

    def _add_unschedulable(self, pod: Pod, signature: bytes) -> None:
        domain = self._domain
        domain.queue.add_unschedulable(pod.uid, signature)
        recorded = (domain.current.waiting.get(pod.uid),)
        domain.groups.long_waits.note(pod.uid, recorded, self._state.facts.now_unix_s)

    def _schedule(self, pod: Pod) -> int:
        """Decide one pod; return the number of searches."""
        domain, state, queue = self._domain, self._state, self._domain.queue
        want = wanted(state, domain.name, pod)
        if not isinstance(want, PodRequest):
            self._add_unschedulable(pod, NO_HINT)
            self._wait(pod, want, is_hinted=False)
            return 0
        started_us = state.stopwatch()
        if want.pattern.is_aware and pod.uid not in queue.resumed:
            self._learn(want)
        choice = schedule_pod(state, domain, want, self._budget)
        if choice is Pause.UNFINISHED:
            queue.paused[pod.uid] = None
            return 1
        if choice is None:
            self._add_unschedulable(pod, want.pattern.signature if want.ordinary else NO_HINT)
            self._wait(pod, self._reasons(want), is_hinted=want.ordinary)
            return 1
        took_us = state.stopwatch() - started_us
        decision = decision_of(domain, want, choice, took_us=took_us)
        decision_bytes = size_bytes(decision)
        if reasons := too_large(state.options, decision_bytes):
            self._add_unschedulable(pod, NO_HINT)
            self._wait(pod, reasons, is_hinted=False)
            return 1
        if domain.current.group_holds or domain.current.node_hold:
            who = claimant(state, pod)
            ended = ended_node_hold(domain, (decision,), who)
            self.put_holds(changed_group_holds(domain, (decision,), who), ended)
        self._put_in_record(decision, decision_bytes)
        keep_scores(state, domain, want, choice.node)
        state.assume(domain, decision)
        if queue.unschedulable_pods or queue.stale_reasons:
            queue.activate_next(want.pattern.signature)
        return 1

    def _put_in_record(self, decision: PodDecision, decision_bytes: int) -> None:
        self._flush_waits()
        self._batch_bytes += decision_bytes
        if self._batch and self._batch_bytes > self._state.options.decided_bytes:
            self.flush()
            self._batch_bytes = decision_bytes
        self._batch.append(decision)

    def _learn(self, want: PodRequest) -> None:
        """Add a new pod to the workload model; the decision may use an earlier version of it."""
        domain = self._domain
        if want.pod.uid not in domain.current.waiting:
            observe(domain, want)
        if is_due(self._state, domain):
            self.flush()
            relearn(self._state, domain)

    def _reasons(self, want: PodRequest) -> tuple[Reason, ...]:
        """Why the pod fits nowhere. Pods with equal signatures share the reasons. Reasons about
        holds are the pod's own, and name no group of another namespace."""
        domain, state = self._domain, self._state
        own: tuple[object, ...] = ()
        if domain.current.group_holds or domain.current.node_hold:
            who, hold = claimant(state, want.pod), domain.current.node_hold
            has_nodes = hold is not None and is_own(hold, who)
            own = (want.pod.namespace, who.group, who.priority, has_nodes)
        key = (want.pattern.signature, *own)
        uses = (state.device_usage.version, state.assumed_pods.version, state.facts.nodes_version)
        at = (*uses, domain.queue.capacity_version)
        known = domain.queue.explained.get(key)
        if known is not None and known[0] == at and want.ordinary:
            return known[1]
        reasons = explain_pod(state, domain, want)
        if want.ordinary:
            if len(domain.queue.explained) >= 1024:
                domain.queue.explained.clear()
            domain.queue.explained[key] = (at, reasons)
        return reasons

    def _flush_waits(self) -> None:
        """Write the reasons since the last decision; pods with the same reasons share a record."""
        if not self._waits:
            return
        for reasons, pods in self._waits.items():
            for record in records.waiting(self._state, self._domain, pods, reasons):
                self._append(record)
        self._waits.clear()

    def flush(self) -> None:
        """Write what was decided since the last record; decisions are assumed already."""
        self._flush_waits()
        domain = self._domain
        if self._batch:
            record = records.decided(self._state, domain, tuple(self._batch))
            self._batch.clear()
            self._batch_bytes = 0
            domain.unwritten = None
            domain.current.fold_counted(self._next(record), record)

    def _wait(self, pod: Pod, reasons: Reasons, *, is_hinted: bool) -> None:
        """Record why the pod is pending, if that changed; changes of counts only after a while.

        Pods without a hint (``NO_HINT``) are tried after every change: together they record
        changed reasons as often as the pods of one signature do.
        """
        known = self._domain.current.waiting.get(pod.uid)
        if known is not None:
            if known.reasons == reasons:
                return
            if not (self._is_news(known, reasons) and (is_hinted or self._may_repeat())):
                self._domain.queue.deferred_reasons[pod.uid] = None
                return
        if self._batch:
            self.flush()
        self._waits.setdefault(reasons, []).append(pod)

    def _is_news(self, known: Waiting, reasons: tuple[Reason, ...]) -> bool:
        """Whether to record the new reasons. If only counts changed: only after
        ``waiting_repeat_s``, or if a node was lost since, because the recorded reasons may name
        it."""
        age_s = self._state.facts.age_s(known.now_unix_s)
        is_old = age_s >= self._state.options.waiting_repeat_s
        is_old = is_old or known.now_unix_s <= self._domain.queue.node_lost_unix_s
        return is_old or _causes(known.reasons) != _causes(reasons)

    def _checkpoint(self) -> None:
        """Append a checkpoint if enough time has passed and enough was recorded.

        A checkpoint is about as long as the decisions of all pods that have devices. It is worth
        its length only after a share of them has changed.
        """
        log, state = self._domain.current, self._state
        age_s = state.facts.age_s(log.checkpoint_unix_s)
        is_news = log.since_checkpoint > len(log.pods) // _PODS_PER_RECORD_SINCE
        if age_s >= state.options.checkpoint_interval_s and is_news and state.ready(self._domain):
            for part in records.checkpoint(state, self._domain):
                self._append(part)

    def _append(self, record: AnyRecord) -> None:
        """Queue a record and fold it at once."""
        changes = self._domain.current.fold(self._next(record), record)
        self._state.requeue(changes, self._domain)

    def _next(self, record: AnyRecord) -> int:
        """Queue a record to be appended; return its sequence."""
        domain = self._domain
        expected = domain.current.sequence
        chained = bool(domain.appended)
        domain.appended.append((expected + 1, record))
        self._state.index.appending[domain.name] = None
        effect = Append(domain.name, domain.epoch, record, expected, chained, domain.term)
        self.effects.append(effect)
        return expected + 1


def _causes(reasons: tuple[Reason, ...]) -> list[tuple[str, str]]:
    return [(reason.kind, reason.what) for reason in reasons]
