"""Possible verdicts of executors on the decision on a group: go, wait, or roll back."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from dray.messages.decisions import PodDecision
from dray_claim_controller.execution.decisions.joint_step import JointStep
from dray_claim_controller.execution.decisions.next_step import GO, WAIT, Step, Stop, stop_jointly
from tools.model_checker.intern_table import Interned
from tools.model_checker.subjects import GROUP_TIMEOUT_S, Subjects

View = Mapping[int, int]
"""Version by subject."""


class JointDecision(NamedTuple):
    """The decision on a group: the decisions on its pods, and its age."""

    members: tuple[int, ...]
    age_s: float

    @property
    def is_late(self) -> bool:
        """Whether the group's time is over."""
        return self.age_s > GROUP_TIMEOUT_S


class GroupVerdicts:
    """The possible verdicts on decisions; each is computed once."""

    def __init__(
        self,
        subjects: Subjects,
        decisions: Interned[PodDecision],
        step: Callable[[int, View], Step],
    ) -> None:
        """``step``: the next step of a decision that waits for its group, with this view."""
        self._subjects = subjects
        self._decisions = decisions
        self._step = step
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    def siblings(self, number: int, joint: JointDecision | None) -> tuple[int, ...]:
        """The pods and claims of the other decisions on a pod's group."""
        found: list[int] = []
        for other in joint.members if joint is not None else ():
            if other != number:
                pod = self._subjects.by_uid[self._decisions[other].pod_uid]
                found += [*self._subjects.all[pod].claims, pod]
        return tuple(found)

    def of(
        self,
        number: int,
        joint: JointDecision | None,
        view: View,
        visible: Sequence[tuple[int, ...]],
    ) -> tuple[str, ...]:
        """The verdicts of an executor with this view, which may have read the other pods and their
        claims (``siblings``) in any of the ``visible`` versions. It may wait at any time."""
        if joint is None:
            return (GO,)
        others = self.siblings(number, joint)
        key = (number, joint.is_late, *view.items(), others, *visible)
        known = self._known.get(key)
        if known is None:
            found = {WAIT: None}
            for versions in product(*visible):
                seen = {**view, **dict(zip(others, versions, strict=True))}
                found |= dict.fromkeys(self._answers(number, joint, seen))
            known = self._known[key] = tuple(found)
        return known

    def _answers(self, number: int, joint: JointDecision, seen: dict[int, int]) -> Iterator[str]:
        """The rule's answer; and until it is to go, the group stops with each of its pods."""
        decisions = tuple(map(self._decisions.__getitem__, joint.members))
        assert decisions[0].group is not None
        question = JointStep(
            decisions=decisions,
            size=decisions[0].group.size,
            timeout_s=decisions[0].group.timeout_s,
            age_s=joint.age_s,
        )
        answer = question.answer(self._subjects.cache(seen))
        yield answer if answer in (GO, WAIT) else stop_jointly("it can't be bound")
        for other in joint.members:
            if other != number and answer != GO and isinstance(self._step(other, seen), Stop):
                yield stop_jointly("a pod of it stops")
