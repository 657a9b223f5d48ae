"""How often each feature is in a case, and how often it decides one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from allocation.cases import Case
from allocation.differences import NOT_DECIDED, kind_of
from allocation.features import FEATURES, features_of
from running import Answers

Json = dict[str, Any]
_BETWEEN: Final = " without "


@dataclass(frozen=True, slots=True)
class Shares:
    """Counts by feature."""

    present: Mapping[str, int]
    cases: int
    decided: Mapping[str, int] = field(default_factory=dict)
    tried: Mapping[str, int] = field(default_factory=dict)
    """In how many of the cases that were asked without their features."""

    def rarest(self) -> tuple[str, float]:
        """The feature that is in the fewest cases, and its share."""
        name = min(FEATURES, key=lambda one: self.present.get(one, 0))
        return name, self.present.get(name, 0) / max(1, self.cases)


def questions_without(asked: Sequence[Case], most: int) -> tuple[Counter[str], list[Json]]:
    """How many cases have each feature; and of the first ``most`` cases each without each."""
    present: Counter[str] = Counter()
    questions = []
    for number, case in enumerate(asked):
        for name, without in features_of(case.question):
            present[name] += 1
            if number < most:
                questions.append(without | {"id": f"{case.id}{_BETWEEN}{name}"})
    return present, questions


def shares_of(present: Counter[str], cases: int, with_them: Answers, without: Answers) -> Shares:
    """The counts, given Kubernetes' answers with and without the features."""
    decided: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for key, answer in without.items():
        case, _, name = key.partition(_BETWEEN)
        tried[name] += 1
        decided[name] += kind_of(with_them[case], answer) not in ("", NOT_DECIDED)
    return Shares(present, cases, decided, tried)
