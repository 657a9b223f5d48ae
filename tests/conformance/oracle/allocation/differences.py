"""Where dray's answer about an allocation is not Kubernetes'."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from allocation.cases import Case
from allocation.quantities import amount_of
from allocation.validity import faults
from running import Answers

Json = dict[str, Any]

FIT: Final = "fits"
NO_FIT: Final = "does not fit"
ERROR: Final = "error"
NOT_DECIDED: Final = "not decided"
"""Kubernetes ran out of the oracle's time: its answer is not known."""
MAP_ORDER: Final = ("1.34", "1.35")
"""Minors that go through the pools in the random order of a Go map: any valid result is right."""
KINDS: Final = (
    "error or not",
    "fit or not",
    "other device",
    "other consumed capacity",
    "other field of a result",
    "other config",
    "other node selector",
    "invalid result",
)
"""What can differ, the gravest first; a case counts under the first."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One case and both answers."""

    case: Case
    theirs: Json
    ours: Json
    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of all cases."""

    outcomes: dict[str, int]
    """Kubernetes' answers, by whether the claims fit."""
    differences: tuple[Difference, ...]
    """Until they are settled, with the cases that are not decided."""
    loose: int = 0
    """Cases in which dray gives another valid result, where any is right."""

    @property
    def undecided(self) -> int:
        """Cases in which there is nothing to compare dray's answer with."""
        return self.outcomes.get(NOT_DECIDED, 0)


def outcome_of(answer: Json) -> str:
    """Whether the claims fit."""
    if answer.get("scope") == "timeout":
        return NOT_DECIDED
    if answer["error"] is not None:
        return ERROR
    return NO_FIT if answer["allocations"] is None else FIT


def compare(asked: Sequence[Case], theirs: Answers, ours: Answers) -> Comparison:
    """The differences, Kubernetes having answered each question once."""
    differences = []
    loose = 0
    for case in asked:
        kind = kind_of(theirs[case.id], ours[case.id])
        if kind and not kind_among(case.question, theirs[case.id], ours[case.id])[0]:
            loose += 1
        elif kind:
            differences.append(Difference(case, theirs[case.id], ours[case.id], kind))
    outcomes = Counter(outcome_of(theirs[case.id]) for case in asked)
    return Comparison(dict(outcomes), tuple(differences), loose)


def settled(found: Comparison, observed: Answers) -> Comparison:
    """Without differences where Kubernetes also gave dray's answer at least once.

    Of the minors whose order is random, dray's answer must be valid and one of the outcomes seen.
    What Kubernetes decided now, having been given more time, counts; what it did not decide again
    is not a difference, and stays among the outcomes.
    """
    kept = []
    outcomes = Counter(found.outcomes)
    for one in found.differences:
        seen = _decided(observed[one.case.id])
        kind, detail = kind_among(one.case.question, observed[one.case.id], one.ours)
        if one.kind == NOT_DECIDED and seen:
            outcomes[NOT_DECIDED] -= 1
            outcomes[outcome_of(seen[0])] += 1
        if kind and seen:
            theirs = seen[0] if one.kind == NOT_DECIDED else one.theirs
            kept.append(Difference(one.case, theirs, one.ours, kind, detail))
    return Comparison(dict(+outcomes), tuple(kept), found.loose)


def _decided(theirs: Json) -> list[Json]:
    """The answers that Kubernetes was seen to give, without its running out of time."""
    seen = theirs.get("observed") or [theirs]
    return [answer for answer in seen if outcome_of(answer) != NOT_DECIDED]


def kind_among(question: Json, theirs: Json, ours: Json) -> tuple[str, str]:
    """What differs from all answers that Kubernetes was seen to give, and more about it."""
    seen = _decided(theirs)
    if not seen:
        return NOT_DECIDED, ""
    kinds = [kind_of(answer, ours) for answer in seen]
    if not all(kinds):
        return "", ""
    outcomes = {outcome_of(answer) for answer in seen}
    if question["k8s"] not in MAP_ORDER or outcome_of(ours) not in outcomes:
        return kinds[0], ""
    wrong = faults(question, ours)
    return ("invalid result", wrong[0]) if wrong else ("", "")


def kind_of(theirs: Json, ours: Json) -> str:
    """What differs, or that nothing is known; empty if nothing does."""
    outcomes = outcome_of(theirs), outcome_of(ours)
    if NOT_DECIDED in outcomes:
        return NOT_DECIDED
    if outcomes[0] != outcomes[1]:
        return "error or not" if ERROR in outcomes else "fit or not"
    if outcomes[0] != FIT:
        return ""
    if len(theirs["allocations"]) != len(ours["allocations"]):
        return "other device"
    pairs = list(zip(theirs["allocations"], ours["allocations"], strict=True))
    for kind, part_of in _PARTS.items():
        if any(part_of(one) != part_of(other) for one, other in pairs):
            return kind
    return ""


def _devices(allocation: Json) -> list[tuple[Any, ...]]:
    keys = ("request", "driver", "pool", "device")
    return [tuple(result[key] for key in keys) for result in allocation["devices"]["results"]]


def _consumed(allocation: Json) -> list[Json]:
    return [
        {key: amount_of(value) for key, value in (result.get("consumedCapacity") or {}).items()}
        for result in allocation["devices"]["results"]
    ]


def _results(allocation: Json) -> list[Json]:
    """The rest of each result; share ids are random, so only whether there is one."""
    return [
        _filled(result) | {"consumedCapacity": None, "shareID": bool(result.get("shareID"))}
        for result in allocation["devices"]["results"]
    ]


def _filled(value: Any) -> Any:
    """``value`` without fields that are empty, which mean the same as fields that are not there."""
    if isinstance(value, dict):
        filled = {key: _filled(item) for key, item in value.items()}
        return {key: item for key, item in filled.items() if item not in (None, {}, [], "")}
    if isinstance(value, list):
        return [_filled(item) for item in value]
    return value


def _config(allocation: Json) -> Any:
    return _filled(allocation["devices"].get("config"))


def _node_selector(allocation: Json) -> Any:
    return _filled(allocation.get("nodeSelector"))


_PARTS: Final[dict[str, Callable[[Json], Any]]] = {
    "other device": _devices,
    "other consumed capacity": _consumed,
    "other field of a result": _results,
    "other config": _config,
    "other node selector": _node_selector,
}
"""What each kind compares, in the order of KINDS."""
