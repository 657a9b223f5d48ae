"""What an executor may write: the real questions, asked of every picture that it may have.

Whoever sleeps has an old picture. So the next step of a decision is asked of every combination of
versions of the objects that it looks at, and a write is possible where the server takes it.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product

from msgspec.structs import replace

from dray.api.claims import GivenUp
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.cache.abandoned_attempts import abandon_attempts
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.decisions import BindPod, Commit, Mark, NextStep, Step, Stop
from dray_claim_controller.execution.in_flight_allocations import MayCommit
from dray_claim_controller.execution.rollback_decisions import (
    MayTakeBack,
    MayVoid,
    PodVoidAnnotation,
    is_held,
)
from dray_sandbox.model_checker.bound import Bound, Refuses
from dray_sandbox.model_checker.numbers import Numbers
from dray_sandbox.model_checker.replicas import EPOCH
from dray_sandbox.model_checker.server import ModelServer
from dray_sandbox.model_checker.state import ModelBus, State, newest_of
from dray_sandbox.model_checker.subjects import NONE, Subjects

Histories = tuple[tuple[int, ...], ...]
"""Per subject, its versions from the first to the newest."""


@dataclass(frozen=True, slots=True, order=True)
class Write:
    """Something that an executor may do now."""

    what: str
    subject: int
    version: int
    """What it makes of the subject."""
    why: str = ""
    record: int = NONE
    """In place of a write: what it gives up of the subject."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an executor goes by."""

    view: dict[int, int]
    """Version by subject."""
    given_up: dict[int, int]
    """What it knows that was given up, by claim."""
    state: State
    leads: bool
    """Whether it may be the leader: who is not publishes nothing."""

    @property
    def histories(self) -> Histories:
        """All versions that there are."""
        return self.state.objects


class Executors:
    """Answers by decision and histories; each is computed once."""

    def __init__(
        self, subjects: Subjects, server: ModelServer, bound: Bound, bus: ModelBus | None = None
    ) -> None:
        self._bound = bound
        self._leased = bus is None or bus.leased
        self.decisions: Numbers[PodDecision] = Numbers()
        self._subjects = subjects
        self._server = server
        self._pictures: dict[tuple[object, ...], ObjectCache] = {}
        self._steps: dict[tuple[object, ...], Step] = {}
        self._problems: dict[tuple[object, ...], str | None] = {}
        self._writes: dict[tuple[object, ...], tuple[Write, ...]] = {}

    def number(self, decision: PodDecision) -> int:
        """The decision's number."""
        return self.decisions.of(repr(decision), decision)

    def writes(self, number: int, committed: tuple[str, ...], state: State) -> tuple[Write, ...]:
        """What anybody may write for a decision; ``committed``: the claims that the log, as far
        as the executor may have read it, calls so."""
        decision = self.decisions[number]
        pod = self._subjects.by_uid[decision.pod_uid]
        others = tuple(state.objects[claim] for claim in self._subjects.claims)
        key = (number, committed, others, state.objects[pod], state.refused, state.given_up)
        known = self._writes.get(key)
        if known is None:
            found = dict.fromkeys(self._find(number, decision, committed, state))
            known = self._writes[key] = tuple(sorted(found))
        return known

    def void(self, claim: int, attempt: int, state: State) -> Write | None:
        """What the command to void a claim comes to, on a picture just read."""
        if self.is_settled(state, claim, attempt):
            return None
        seen = self._newest(state, claim)
        uid = self._subjects.all[claim].name
        if not MayVoid(claim_uid=uid, attempt=attempt).answer(self._picture(seen)):
            return None
        return self._void(claim, attempt, seen)

    def void_again(self, claim: int, state: State) -> Write | None:
        """The void that could not be written, once it can be."""
        now = state.objects[claim][-1]
        seen = self._newest(state, claim)
        uid = self._subjects.all[claim].name
        if now == self._subjects.gone or claim in state.refused:
            return None
        record = self._picture(seen).given_up.get(uid)
        if record is None:
            return None
        made = self._voided(claim, now, now, record.attempt)
        return None if made is None else Write("void again", claim, made)

    def is_settled(self, state: State, claim: int, attempt: int) -> bool:
        """Whether the attempt is never carried out any more, or is given up at least."""
        now = state.objects[claim][-1]
        if now == self._subjects.gone:
            return True
        uid, picture = self._subjects.all[claim].name, self._picture(self._newest(state, claim))
        record = picture.given_up.get(uid)
        given_up = 0 if record is None else record.attempt
        return max(picture.claims[uid].claim.void, given_up) >= attempt

    def record(self, state: State, claim: int) -> GivenUp | None:
        """What is given up of a claim, and is not void by annotation."""
        picture = self._picture(self._newest(state, claim))
        return picture.given_up.get(self._subjects.all[claim].name)

    def _newest(self, state: State, claim: int) -> _Seen:
        record = newest_of(state).get(claim, NONE)
        return _Seen({claim: state.objects[claim][-1]}, {claim: record}, state, leads=True)

    def _find(
        self, number: int, decision: PodDecision, committed: tuple[str, ...], state: State
    ) -> Iterator[Write]:
        by_uid, histories = self._subjects.by_uid, state.objects
        pod = by_uid[decision.pod_uid]
        looked_at = [*self._subjects.all[pod].claims, pod]
        for versions in product(*(self._may_see(histories[subject]) for subject in looked_at)):
            view = dict(zip(looked_at, versions, strict=True))
            for seen in self._knowing(view, state):
                for told in subsets(committed):
                    if self._has_heard(told, view, histories):
                        yield from self._write(number, decision, told, seen)

    def _knowing(self, view: dict[int, int], state: State) -> Iterator[_Seen]:
        """What an executor of that picture may know that was given up.

        Who leads, or will, knows all of it. Who has led before knows only what was given up until
        then, but has read nothing since: it looks at its Lease after the read that fences a write.
        """
        options = [
            [(claim, known) for known in self._may_know(claim, view[claim], state)]
            for claim in dict.fromkeys(one.claim for one in state.given_up if one.claim in view)
        ]
        newest = newest_of(state)
        for chosen in product(*options):
            given_up = dict(chosen)
            leads = all(newest[claim] == record for claim, record in given_up.items())
            yield _Seen(view, given_up, state, leads)

    def _may_know(self, claim: int, version: int, state: State) -> Iterator[int]:
        """What who has read this version may know that was given up of the claim."""
        at, known = state.objects[claim].index(version), NONE
        for one in state.given_up:
            if one.claim == claim:
                if at <= one.at or not self._leased:
                    yield known
                known = one.record
        yield known

    def _write(
        self, number: int, decision: PodDecision, told: tuple[str, ...], seen: _Seen
    ) -> Iterator[Write]:
        by_uid, pod = self._subjects.by_uid, self._subjects.by_uid[decision.pod_uid]
        step = self._step(number, decision, told, seen)
        match step:
            case Mark(claim):
                yield from self._mark(by_uid[claim.uid], claim.attempt, seen, decision)
            case Commit():
                yield from self._commit(step, seen, decision)
            case BindPod():
                yield from self._bind(pod, seen, decision.node)
            case Stop(reason, _, True, siblings):
                whole = replace(decision, claims=(*siblings, *decision.claims))
                yield from self._take_back(whole, seen, reason)
            case _:
                pass

    def _may_see(self, history: tuple[int, ...]) -> tuple[int, ...]:
        """A leader sees its own writes at once, and late only that something was deleted."""
        if self._bound.late_executors:
            return history
        return history[-2:] if history[-1] == self._subjects.gone else history[-1:]

    def _has_heard(self, told: tuple[str, ...], view: dict[int, int], histories: Histories) -> bool:
        """Whether an executor of that picture may have read in the log that claims are committed.

        What the log calls committed was published from a leader's picture. Only a leader that
        was replaced, did not notice yet, and read the log anew may know less itself.
        """
        if self._bound.replaced_leaders:
            return True
        for uid in told:
            claim = self._subjects.by_uid[uid]
            for version in histories[claim]:
                if self._allocation(version) is not None:
                    break
                if version == view[claim]:
                    return False
        return True

    def _allocation(self, version: int) -> object:
        return (self._subjects.versions[version].get("status") or {}).get("allocation")

    def _step(self, number: int, decision: PodDecision, told: tuple[str, ...], seen: _Seen) -> Step:
        key = (number, told, *seen.view.items(), *seen.given_up.items())
        known = self._steps.get(key)
        if known is None:
            question = NextStep(decision=decision, epoch=EPOCH, committed=told)
            known = self._steps[key] = question.answer(self._picture(seen))
        return known

    def _mark(
        self, claim: int, attempt: int, seen: _Seen, decision: PodDecision
    ) -> Iterator[Write]:
        read, now = seen.view[claim], seen.histories[claim][-1]
        if claim in seen.state.refused:
            # It stops, and takes back what it has written: nothing.
            yield from self._take_back(decision, seen, "refused")
            return
        made = self._server.write(
            ("mark", attempt), claim, read, now, lambda writes, one: writes.mark(one, attempt)
        )
        if made is not None:
            yield Write("mark", claim, made)

    def _commit(self, step: Commit, seen: _Seen, decision: PodDecision) -> Iterator[Write]:
        wanted, view, histories = step.claim, seen.view, seen.histories
        claim = self._subjects.by_uid[wanted.uid]
        reserved = [(decision.name, decision.pod_uid)]
        others = [other for other in self._subjects.claims if other not in view]
        for versions in product(
            *(self._holdings(self._may_see(histories[other])) for other in others)
        ):
            picture = view | dict(zip(others, versions, strict=True))
            key = ("problem", wanted.uid, wanted.attempt, *picture.items())
            if key not in self._problems:
                checked = MayCommit(claim=wanted).answer(self._subjects.picture(picture))
                self._problems[key] = checked.problem
            if self._problems[key] is not None:
                yield from self._take_back(decision, seen, "double-sale")
                continue
            if self._refuses_status(claim, seen):
                yield from self._take_back(decision, seen, "refused")
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

    def _refuses_status(self, claim: int, seen: _Seen) -> bool:
        return claim in seen.state.refused and self._bound.refuses is Refuses.EVERYTHING

    def _bind(self, pod: int, seen: _Seen, node: str) -> Iterator[Write]:
        made = self._server.bind(pod, seen.view[pod], seen.histories[pod][-1], node)
        if made is not None:
            yield Write("bind", pod, made, node)

    def _take_back(self, decision: PodDecision, seen: _Seen, why: str) -> Iterator[Write]:
        """The first claim that may be taken back and is not yet: the pod is told, then void, then
        clear.

        From the picture that the executor stops at. What it does to the next claim, perhaps from
        a newer picture, is what whoever finds the first one void does, and that is anybody.
        """
        picture = self._picture(seen)
        for wanted in decision.claims:
            if not _may_take_back(picture, decision, wanted):
                continue
            claim, known = self._subjects.by_uid[wanted.uid], picture.claims[wanted.uid].claim
            read, now = seen.view[claim], seen.histories[claim][-1]
            if is_held(picture, wanted) and (
                voids := PodVoidAnnotation(decision=decision).answer(picture)
            ):
                pod = self._subjects.by_uid[decision.pod_uid]
                made = self._server.keep_unbound(
                    pod, seen.view[pod], seen.histories[pod][-1], voids
                )
                if made is not None:
                    yield Write("take back: tell", pod, made, why)
                return
            record = picture.given_up.get(wanted.uid)
            given_up = 0 if record is None else record.attempt
            if max(known.void, given_up) < wanted.attempt:
                if (write := self._void(claim, wanted.attempt, seen)) is not None:
                    yield dataclasses.replace(write, what=f"take back: {write.what}", why=why)
                return
            if is_held(picture, wanted):
                if not self._refuses_status(claim, seen):
                    made = self._server.write(
                        ("clear",), claim, read, now, lambda writes, one: writes.clear(one)
                    )
                    if made is not None:
                        yield Write("take back: clear", claim, made, why)
                return

    def _void(self, claim: int, attempt: int, seen: _Seen) -> Write | None:
        """Void the claim, in place of its mark where only that is taken, or give it up."""
        read, now = seen.view[claim], seen.histories[claim][-1]
        if claim not in seen.state.refused:
            made = self._voided(claim, read, now, attempt)
            return None if made is None else Write("void", claim, made)
        marked = self._subjects.claim(read).decision
        if self._bound.refuses is Refuses.GROWTH and 0 < marked <= attempt:
            made = self._server.write(
                ("void in place", attempt),
                claim,
                read,
                now,
                lambda writes, one: writes.void(one, attempt, in_place_of_mark=True),
            )
            return None if made is None else Write("void", claim, made)
        if not seen.leads:
            return None
        return self._give_up(claim, attempt, seen.state)

    def _give_up(self, claim: int, attempt: int, state: State) -> Write | None:
        """By the newest that there is to be read."""
        now = state.objects[claim][-1]
        if now == self._subjects.gone or self.is_settled(state, claim, attempt):
            return None
        known = self._picture(self._newest(state, claim)).given_up.get(
            self._subjects.all[claim].name
        )
        made = abandon_attempts(self._subjects.claim(now), known, attempt, "refused")
        return Write("give up", claim, now, record=self._subjects.records.of(repr(made), made))

    def _voided(self, claim: int, seen: int, now: int, attempt: int) -> int | None:
        return self._server.write(
            ("void", attempt), claim, seen, now, lambda writes, one: writes.void(one, attempt)
        )

    def _holdings(self, history: tuple[int, ...]) -> list[int]:
        """Versions of a claim that differ in what it holds."""
        found: dict[str, int] = {}
        for version in history:
            found.setdefault(repr(self._allocation(version)), version)
        return list(found.values())

    def _picture(self, seen: _Seen) -> ObjectCache:
        key = (*seen.view.items(), "given up", *seen.given_up.items())
        known = self._pictures.get(key)
        if known is None:
            known = self._pictures[key] = self._subjects.picture(seen.view, seen.given_up)
        return known


def _may_take_back(picture: ObjectCache, decision: PodDecision, wanted: ClaimDecision) -> bool:
    question = MayTakeBack(
        claim_uid=wanted.uid,
        attempt=wanted.attempt,
        pod_uid=decision.pod_uid,
        binder=decision.binder,
    )
    return question.answer(picture)


def subsets(items: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Of nothing to everything."""
    sizes = range(len(items) + 1)
    return chain.from_iterable(combinations(items, size) for size in sizes)
