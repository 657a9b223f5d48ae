"""The possible writes of executors: the real rules, evaluated for every cache they may have.

A stopped executor has an old cache. So the next step of a decision is evaluated for every
combination of versions of its objects, and a write is possible if the server accepts it.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product

from msgspec.structs import replace

from dray.api.claims import GivenUp
from dray.kube.convert_claims import Consumer
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.cache.abandoned_attempts import abandon_attempts
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.decisions.adoption import GroupRollbacks
from dray_claim_controller.execution.decisions.in_flight_allocations import CommitCheck
from dray_claim_controller.execution.decisions.next_step import (
    WAIT,
    BindPod,
    Commit,
    Mark,
    NextStep,
    Step,
    Stop,
)
from dray_claim_controller.execution.decisions.rollback_rules import (
    PodVoidAnnotation,
    RollbackCheck,
    VoidCheck,
    is_held,
)
from dray_claim_controller.groups.decisions.rules import DueForGroup
from tools.model_checker.bounds import Bound, RefusedWrites
from tools.model_checker.group_verdicts import GroupVerdicts, JointDecision, View
from tools.model_checker.intern_table import Interned
from tools.model_checker.replicas import EPOCH
from tools.model_checker.server import ModelServer
from tools.model_checker.state import ModelBus, State, newest_of
from tools.model_checker.subjects import GROUP, GROUP_TIMEOUT_S, NONE, Subjects

Histories = tuple[tuple[int, ...], ...]
"""Versions by subject, from the first to the newest."""


@dataclass(frozen=True, slots=True, order=True)
class Write:
    """A possible write of an executor."""

    what: str
    subject: int
    version: int
    """The subject's new version."""
    why: str = ""
    record: int = NONE
    """The record of given-up attempts, instead of a write."""


@dataclass(frozen=True, slots=True)
class _Observation:
    """The knowledge of an executor."""

    view: dict[int, int]
    """Version by subject."""
    given_up: dict[int, int]
    """Known records of given-up attempts, by claim."""
    state: State
    leads: bool
    """Whether it may be the leader; only the leader publishes."""

    @property
    def histories(self) -> Histories:
        """All versions of all subjects."""
        return self.state.objects


class Executors:
    """Possible writes by decision and histories; each is computed once."""

    def __init__(
        self, subjects: Subjects, server: ModelServer, bound: Bound, bus: ModelBus | None = None
    ) -> None:
        self._bound = bound
        self._leased = bus is None or bus.leased
        self.decisions: Interned[PodDecision] = Interned()
        self._subjects = subjects
        self._server = server
        self._caches: dict[tuple[object, ...], ObjectCache] = {}
        self._steps: dict[tuple[object, ...], Step] = {}
        self._verdicts = GroupVerdicts(subjects, self.decisions, self._waiting_step)
        self._problems: dict[tuple[object, ...], str | None] = {}
        self._writes: dict[tuple[object, ...], tuple[Write, ...]] = {}

    def number(self, decision: PodDecision) -> int:
        """The decision's number."""
        return self.decisions.of(repr(decision), decision)

    def writes(
        self,
        number: int,
        committed: tuple[str, ...],
        state: State,
        joint: JointDecision | None = None,
    ) -> tuple[Write, ...]:
        """Possible writes of any executor for a decision; ``committed``: the claims that the log
        names as committed; ``joint``: the decision on its group."""
        decision = self.decisions[number]
        pod = self._subjects.by_uid[decision.pod_uid]
        others = tuple(state.objects[claim] for claim in self._subjects.claims)
        members = self._verdicts.siblings(number, joint)
        key = (
            *(number, committed, others, state.objects[pod], state.refused, state.given_up),
            *(joint is not None and joint.is_late, members),
            tuple(state.objects[one] for one in members),
        )
        known = self._writes.get(key)
        if known is None:
            found = dict.fromkeys(self._find(number, joint, committed, state))
            known = self._writes[key] = tuple(sorted(found))
        return known

    def void(self, claim: int, attempt: int, state: State) -> Write | None:
        """The write for a command to void a claim, with the newest objects."""
        if self.is_settled(state, claim, attempt):
            return None
        observed = self._newest(state, claim)
        uid = self._subjects.all[claim].name
        if not VoidCheck(claim_uid=uid, attempt=attempt).answer(self._cache(observed)):
            return None
        return self._void(claim, attempt, observed)

    def repeat_void(self, claim: int, state: State) -> Write | None:
        """Write a void that was refused earlier, if it is possible now."""
        now = state.objects[claim][-1]
        observed = self._newest(state, claim)
        uid = self._subjects.all[claim].name
        if now == self._subjects.gone or claim in state.refused:
            return None
        record = self._cache(observed).given_up.get(uid)
        if record is None:
            return None
        made = self._voided(claim, now, now, record.attempt)
        return None if made is None else Write("repeat void", claim, made)

    def is_settled(self, state: State, claim: int, attempt: int) -> bool:
        """Whether the attempt is void or given up."""
        now = state.objects[claim][-1]
        if now == self._subjects.gone:
            return True
        uid, cache = self._subjects.all[claim].name, self._cache(self._newest(state, claim))
        record = cache.given_up.get(uid)
        given_up = 0 if record is None else record.attempt
        return max(cache.claims[uid].claim.void, given_up) >= attempt

    def record(self, state: State, claim: int) -> GivenUp | None:
        """The record of given-up attempts of a claim that its annotation does not void."""
        cache = self._cache(self._newest(state, claim))
        return cache.given_up.get(self._subjects.all[claim].name)

    def _newest(self, state: State, claim: int) -> _Observation:
        record = newest_of(state).get(claim, NONE)
        return _Observation({claim: state.objects[claim][-1]}, {claim: record}, state, leads=True)

    def _find(
        self,
        number: int,
        joint: JointDecision | None,
        committed: tuple[str, ...],
        state: State,
    ) -> Iterator[Write]:
        decision = self.decisions[number]
        by_uid, histories = self._subjects.by_uid, state.objects
        pod = by_uid[decision.pod_uid]
        looked_at = [*self._subjects.all[pod].claims, pod]
        siblings = self._verdicts.siblings(number, joint)
        others = [self._visible(histories[one]) for one in siblings]
        for versions in product(*(self._visible(histories[subject]) for subject in looked_at)):
            view = dict(zip(looked_at, versions, strict=True))
            verdicts = self._verdicts.of(number, joint, view, others)
            for observed in self._views(view, state):
                for read_commits in subsets(committed):
                    if self._may_have_read(read_commits, view, histories):
                        for verdict in verdicts:
                            yield from self._write(number, verdict, read_commits, observed)

    def group_ends(self, joints: dict[str, JointDecision], state: State) -> Iterator[Write]:
        """The writes of a group's deadline, with the newest objects."""
        newest = next(reversed(joints.values()), None)
        if newest is None or not newest.is_late:
            return
        looked_at = (*self._subjects.claims, *self._subjects.pods)
        view = {one: state.objects[one][-1] for one in looked_at}
        cache = self._cached(view, newest_of(state))
        due = DueForGroup(
            group=GROUP,
            below_s=newest.age_s,
            timeout_s=GROUP_TIMEOUT_S,
            grace_s=GROUP_TIMEOUT_S,
        ).answer(cache)
        for uid in due.evict:
            yield Write("evict", self._subjects.by_uid[uid], self._subjects.gone)
        for execution in GroupRollbacks(pods=due.roll_back).answer(cache):
            observed = _Observation(view, newest_of(state), state, leads=True)
            yield from self._roll_back(execution.decision, observed, "the group ends")

    def _views(self, view: dict[int, int], state: State) -> Iterator[_Observation]:
        """The possible knowledge of given-up attempts with this cache.

        A present or future leader knows all. A former leader knows those of its term, and has read
        nothing since: it checks its Lease after the read that fences a write.
        """
        options = [
            [(claim, known) for known in self._known_records(claim, view[claim], state)]
            for claim in dict.fromkeys(one.claim for one in state.given_up if one.claim in view)
        ]
        newest = newest_of(state)
        for chosen in product(*options):
            given_up = dict(chosen)
            leads = all(newest[claim] == record for claim, record in given_up.items())
            yield _Observation(view, given_up, state, leads)

    def _known_records(self, claim: int, version: int, state: State) -> Iterator[int]:
        """The records of a claim that a reader of this version may know."""
        at, known = state.objects[claim].index(version), NONE
        for one in state.given_up:
            if one.claim == claim:
                if at <= one.at or not self._leased:
                    yield known
                known = one.record
        yield known

    def _write(
        self,
        number: int,
        verdict: str,
        read_commits: tuple[str, ...],
        observed: _Observation,
    ) -> Iterator[Write]:
        decision = self.decisions[number]
        by_uid, pod = self._subjects.by_uid, self._subjects.by_uid[decision.pod_uid]
        step = self._step(number, read_commits, observed.view, observed.given_up, verdict)
        match step:
            case Mark(claim):
                yield from self._mark(by_uid[claim.uid], claim.attempt, observed, decision)
            case Commit():
                yield from self._commit(step, observed, decision)
            case BindPod():
                yield from self._bind(pod, observed, decision.node)
            case Stop(reason, _, True, siblings):
                whole = replace(decision, claims=(*siblings, *decision.claims))
                yield from self._roll_back(whole, observed, reason)
            case _:
                pass

    def _visible(self, history: tuple[int, ...]) -> tuple[int, ...]:
        """The visible versions: without late executors the newest, or the one before a deletion."""
        if self._bound.late_executors:
            return history
        return history[-2:] if history[-1] == self._subjects.gone else history[-1:]

    def _may_have_read(
        self, read_commits: tuple[str, ...], view: dict[int, int], histories: Histories
    ) -> bool:
        """Whether an executor with this cache may have read these commits in the log.

        Commits in the log come from a leader's cache. Only a replaced leader that reads the log
        again may have an older cache.
        """
        if self._bound.replaced_leaders:
            return True
        for uid in read_commits:
            claim = self._subjects.by_uid[uid]
            for version in histories[claim]:
                if self._allocation(version) is not None:
                    break
                if version == view[claim]:
                    return False
        return True

    def _allocation(self, version: int) -> object:
        return (self._subjects.versions[version].get("status") or {}).get("allocation")

    def _waiting_step(self, number: int, view: View) -> Step:
        """The step of an executor that waits for its group."""
        return self._step(number, (), view, {}, WAIT)

    def _step(
        self,
        number: int,
        read_commits: tuple[str, ...],
        view: View,
        given_up: View,
        verdict: str,
    ) -> Step:
        key = (number, verdict, read_commits, *view.items(), *given_up.items())
        known = self._steps.get(key)
        if known is None:
            question = NextStep(
                decision=self.decisions[number], epoch=EPOCH, committed=read_commits, joint=verdict
            )
            known = self._steps[key] = question.answer(self._cached(view, given_up))
        return known

    def _mark(
        self, claim: int, attempt: int, observed: _Observation, decision: PodDecision
    ) -> Iterator[Write]:
        read, now = observed.view[claim], observed.histories[claim][-1]
        if claim in observed.state.refused:
            # It stops, and rolls back nothing.
            yield from self._roll_back(decision, observed, "refused")
            return
        made = self._server.write(
            ("mark", attempt), claim, read, now, lambda writes, one: writes.mark(one, attempt)
        )
        if made is not None:
            yield Write("mark", claim, made)

    def _commit(
        self, step: Commit, observed: _Observation, decision: PodDecision
    ) -> Iterator[Write]:
        wanted, view, histories = step.claim, observed.view, observed.histories
        claim = self._subjects.by_uid[wanted.uid]
        reserved = [Consumer(decision.name, decision.pod_uid)]
        others = [other for other in self._subjects.claims if other not in view]
        for versions in product(
            *(self._holdings(self._visible(histories[other])) for other in others)
        ):
            cache = view | dict(zip(others, versions, strict=True))
            key = ("problem", wanted.uid, wanted.attempt, *cache.items())
            if key not in self._problems:
                checked = CommitCheck(claim=wanted).answer(self._subjects.cache(cache))
                self._problems[key] = checked.problem
            if self._problems[key] is not None:
                yield from self._roll_back(decision, observed, "double-sale")
                continue
            if self._refuses_status(claim, observed):
                yield from self._roll_back(decision, observed, "refused")
                continue
            made = self._server.write(
                ("commit", wanted.attempt, repr(wanted.allocation)),
                claim,
                view[claim],
                histories[claim][-1],
                lambda writes, one: writes.commit(
                    one, wanted.allocation, reserved_for=reserved, timestamp_unix_s=None
                ),
            )
            if made is not None:
                yield Write("commit", claim, made)

    def _refuses_status(self, claim: int, observed: _Observation) -> bool:
        return (
            claim in observed.state.refused
            and self._bound.refused_writes is RefusedWrites.EVERYTHING
        )

    def _bind(self, pod: int, observed: _Observation, node: str) -> Iterator[Write]:
        made = self._server.bind(pod, observed.view[pod], observed.histories[pod][-1], node)
        if made is not None:
            yield Write("bind", pod, made, node)

    def _roll_back(
        self, decision: PodDecision, observed: _Observation, why: str
    ) -> Iterator[Write]:
        """Roll back the first claim that needs it: annotate the pod, void, then clear.

        With the cache at which the executor stops. The next claim, possibly with a newer cache, is
        rolled back by any executor that finds the first one void.
        """
        cache = self._cache(observed)
        for wanted in decision.claims:
            if not _may_roll_back(cache, decision, wanted):
                continue
            claim, known = self._subjects.by_uid[wanted.uid], cache.claims[wanted.uid].claim
            read, now = observed.view[claim], observed.histories[claim][-1]
            if is_held(cache, wanted) and (
                voids := PodVoidAnnotation(decision=decision).answer(cache)
            ):
                pod = self._subjects.by_uid[decision.pod_uid]
                made = self._server.keep_unbound(
                    pod, observed.view[pod], observed.histories[pod][-1], voids
                )
                if made is not None:
                    yield Write("roll back: annotate", pod, made, why)
                return
            record = cache.given_up.get(wanted.uid)
            given_up = 0 if record is None else record.attempt
            if max(known.void, given_up) < wanted.attempt:
                if (write := self._void(claim, wanted.attempt, observed)) is not None:
                    yield dataclasses.replace(write, what=f"roll back: {write.what}", why=why)
                return
            if is_held(cache, wanted):
                if not self._refuses_status(claim, observed):
                    made = self._server.write(
                        ("clear",), claim, read, now, lambda writes, one: writes.clear(one)
                    )
                    if made is not None:
                        yield Write("roll back: clear", claim, made, why)
                return

    def _void(self, claim: int, attempt: int, observed: _Observation) -> Write | None:
        """Void the claim, or replace its mark if only that is accepted, or give it up."""
        read, now = observed.view[claim], observed.histories[claim][-1]
        if claim not in observed.state.refused:
            made = self._voided(claim, read, now, attempt)
            return None if made is None else Write("void", claim, made)
        marked = self._subjects.claim(read).decision
        if self._bound.refused_writes is RefusedWrites.GROWTH and 0 < marked <= attempt:
            made = self._server.write(
                ("void in place", attempt),
                claim,
                read,
                now,
                lambda writes, one: writes.void(one, attempt, in_place_of_mark=True),
            )
            return None if made is None else Write("void", claim, made)
        if not observed.leads:
            return None
        return self._give_up(claim, attempt, observed.state)

    def _give_up(self, claim: int, attempt: int, state: State) -> Write | None:
        """Give the attempt up, with the newest objects."""
        now = state.objects[claim][-1]
        if now == self._subjects.gone or self.is_settled(state, claim, attempt):
            return None
        known = self._cache(self._newest(state, claim)).given_up.get(self._subjects.all[claim].name)
        made = abandon_attempts(self._subjects.claim(now), known, attempt, "refused")
        return Write("give up", claim, now, record=self._subjects.records.of(repr(made), made))

    def _voided(self, claim: int, observed: int, now: int, attempt: int) -> int | None:
        return self._server.write(
            ("void", attempt), claim, observed, now, lambda writes, one: writes.void(one, attempt)
        )

    def _holdings(self, history: tuple[int, ...]) -> list[int]:
        """Versions of a claim with different allocations."""
        found: dict[str, int] = {}
        for version in history:
            found.setdefault(repr(self._allocation(version)), version)
        return list(found.values())

    def _cache(self, observed: _Observation) -> ObjectCache:
        return self._cached(observed.view, observed.given_up)

    def _cached(self, view: View, given_up: View) -> ObjectCache:
        key = (*view.items(), "given up", *given_up.items())
        known = self._caches.get(key)
        if known is None:
            known = self._caches[key] = self._subjects.cache(view, given_up)
        return known


def _may_roll_back(cache: ObjectCache, decision: PodDecision, wanted: ClaimDecision) -> bool:
    question = RollbackCheck(
        claim_uid=wanted.uid,
        attempt=wanted.attempt,
        pod_uid=decision.pod_uid,
        binder=decision.binder,
    )
    return question.answer(cache)


def subsets(items: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All subsets, smallest first."""
    sizes = range(len(items) + 1)
    return chain.from_iterable(combinations(items, size) for size in sizes)
