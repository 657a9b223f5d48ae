"""What an executor may write: the real questions, asked of every picture that it may have.

Whoever sleeps has an old picture. So the next step of a decision is asked of every combination of
versions of the objects that it looks at, and a write is possible where the server takes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product

from msgspec.structs import replace

from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.deciding.executing import (
    MayCommit,
    MayTakeBack,
    MayVoid,
    NextStep,
    Untold,
)
from dray_claim_controller.execute.rules import Bind, Commit, Mark, Step, Stop
from dray_claim_controller.execute.voids import is_held
from dray_claim_controller.observe.picture import Picture
from dray_sandbox.explorer.bound import Bound
from dray_sandbox.explorer.numbers import Numbers
from dray_sandbox.explorer.replicas import EPOCH
from dray_sandbox.explorer.server import Server
from dray_sandbox.explorer.subjects import Subjects

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


class Executors:
    """Answers by decision and histories; each is computed once."""

    def __init__(self, subjects: Subjects, server: Server, bound: Bound) -> None:
        self._bound = bound
        self.decisions: Numbers[PodDecision] = Numbers()
        self._subjects = subjects
        self._server = server
        self._pictures: dict[tuple[tuple[int, int], ...], Picture] = {}
        self._steps: dict[tuple[object, ...], Step] = {}
        self._problems: dict[tuple[object, ...], str | None] = {}
        self._writes: dict[tuple[object, ...], tuple[Write, ...]] = {}

    def number(self, decision: PodDecision) -> int:
        """The decision's number."""
        return self.decisions.of(repr(decision), decision)

    def writes(
        self, number: int, committed: tuple[str, ...], histories: Histories
    ) -> tuple[Write, ...]:
        """What anybody may write for a decision; ``committed``: the claims that the log, as far
        as the executor may have read it, calls so."""
        decision = self.decisions[number]
        pod = self._subjects.by_uid[decision.pod_uid]
        others = tuple(histories[claim] for claim in self._subjects.claims)
        key = (number, committed, others, histories[pod])
        known = self._writes.get(key)
        if known is None:
            found = dict.fromkeys(self._find(number, decision, committed, histories))
            known = self._writes[key] = tuple(sorted(found))
        return known

    def void(self, claim: int, attempt: int, now: int) -> int | None:
        """The claim after the command to void it was carried out, on a picture just read."""
        if self.is_void(claim, attempt, now):
            return None
        uid = self._subjects.all[claim].name
        if not MayVoid(claim_uid=uid, attempt=attempt).answer(self._picture({claim: now})):
            return None
        return self._void(claim, now, now, attempt)

    def is_void(self, claim: int, attempt: int, now: int) -> bool:
        """Whether the attempt can never be carried out any more."""
        if now == self._subjects.gone:
            return True
        uid = self._subjects.all[claim].name
        return self._picture({claim: now}).claims[uid].claim.void >= attempt

    def _find(
        self, number: int, decision: PodDecision, committed: tuple[str, ...], histories: Histories
    ) -> Iterator[Write]:
        by_uid = self._subjects.by_uid
        pod = by_uid[decision.pod_uid]
        looked_at = [*self._subjects.all[pod].claims, pod]
        for versions in product(*(self._may_see(histories[subject]) for subject in looked_at)):
            view = dict(zip(looked_at, versions, strict=True))
            for told in subsets(committed):
                if not self._has_heard(told, view, histories):
                    continue
                step = self._step(number, decision, told, view)
                match step:
                    case Mark(claim):
                        yield from self._mark(by_uid[claim.uid], claim.attempt, view, histories)
                    case Commit():
                        yield from self._commit(step, view, histories, decision)
                    case Bind():
                        yield from self._bind(pod, view[pod], decision.node, histories)
                    case Stop(reason, _, True, siblings):
                        whole = replace(decision, claims=(*siblings, *decision.claims))
                        yield from self._take_back(whole, view, histories, reason)
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

    def _step(
        self, number: int, decision: PodDecision, told: tuple[str, ...], view: dict[int, int]
    ) -> Step:
        key = (number, told, *view.items())
        known = self._steps.get(key)
        if known is None:
            question = NextStep(decision=decision, epoch=EPOCH, committed=told)
            known = self._steps[key] = question.answer(self._picture(view))
        return known

    def _mark(
        self, claim: int, attempt: int, view: dict[int, int], histories: Histories
    ) -> Iterator[Write]:
        now = histories[claim][-1]
        made = self._server.write(
            ("mark", attempt),
            claim,
            view[claim],
            now,
            lambda writes, seen: writes.mark(seen, attempt),
        )
        if made is not None:
            yield Write("mark", claim, made)

    def _commit(
        self,
        step: Commit,
        view: dict[int, int],
        histories: Histories,
        decision: PodDecision,
    ) -> Iterator[Write]:
        wanted = step.claim
        claim = self._subjects.by_uid[wanted.uid]
        reserved = [(decision.name, decision.pod_uid)]
        others = [other for other in self._subjects.claims if other not in view]
        for versions in product(
            *(self._holdings(self._may_see(histories[other])) for other in others)
        ):
            picture = view | dict(zip(others, versions, strict=True))
            key = ("problem", wanted.uid, wanted.attempt, *picture.items())
            if key not in self._problems:
                checked = MayCommit(claim=wanted).answer(self._picture(picture))
                self._problems[key] = checked.problem
            if self._problems[key] is not None:
                yield from self._take_back(decision, view, histories, "double-sale")
                continue
            made = self._server.write(
                ("commit", wanted.attempt, repr(wanted.allocation)),
                claim,
                view[claim],
                histories[claim][-1],
                lambda writes, seen: writes.commit(
                    seen, wanted.allocation, reserved_for=reserved, timestamp_unix_s=None
                ),
            )
            if made is not None:
                yield Write("commit", claim, made)

    def _bind(self, pod: int, seen: int, node: str, histories: Histories) -> Iterator[Write]:
        made = self._server.bind(pod, seen, histories[pod][-1], node)
        if made is not None:
            yield Write("bind", pod, made, node)

    def _take_back(
        self, decision: PodDecision, view: dict[int, int], histories: Histories, why: str
    ) -> Iterator[Write]:
        """The first claim that may be taken back and is not yet: the pod is told, then void, then
        clear.

        From the picture that the executor stops at. What it does to the next claim, perhaps from
        a newer picture, is what whoever finds the first one void does, and that is anybody.
        """
        picture = self._picture(view)
        for wanted in decision.claims:
            if not _may_take_back(picture, decision, wanted):
                continue
            claim, seen = self._subjects.by_uid[wanted.uid], picture.claims[wanted.uid].claim
            read, now = view[claim], histories[claim][-1]
            if is_held(picture, wanted) and (voids := Untold(decision=decision).answer(picture)):
                pod = self._subjects.by_uid[decision.pod_uid]
                made = self._server.keep_unbound(pod, view[pod], histories[pod][-1], voids)
                if made is not None:
                    yield Write("take back: tell", pod, made, why)
                return
            if seen.void < wanted.attempt:
                if (made := self._void(claim, read, now, wanted.attempt)) is not None:
                    yield Write("take back: void", claim, made, why)
                return
            if is_held(picture, wanted):
                made = self._server.write(
                    ("clear",), claim, read, now, lambda writes, one: writes.clear(one)
                )
                if made is not None:
                    yield Write("take back: clear", claim, made, why)
                return

    def _void(self, claim: int, seen: int, now: int, attempt: int) -> int | None:
        return self._server.write(
            ("void", attempt), claim, seen, now, lambda writes, one: writes.void(one, attempt)
        )

    def _holdings(self, history: tuple[int, ...]) -> list[int]:
        """Versions of a claim that differ in what it holds."""
        found: dict[str, int] = {}
        for version in history:
            found.setdefault(repr(self._allocation(version)), version)
        return list(found.values())

    def _picture(self, view: dict[int, int]) -> Picture:
        key = tuple(view.items())
        known = self._pictures.get(key)
        if known is None:
            known = self._pictures[key] = self._subjects.picture(view)
        return known


def _may_take_back(picture: Picture, decision: PodDecision, wanted: ClaimDecision) -> bool:
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
