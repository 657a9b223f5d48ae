"""Where dray's answers are not Kubernetes'."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from generate import TAGS, Pair
from intended import reason_for
from running import Answers

Answer = dict[str, Any]
ASPECTS = ("compile_error", "admission", "result", "eval_error", "cost", "actual_cost")
"""Errors are compared by whether there is one: their texts may differ."""
EVALUATED = frozenset({"result", "eval_error", "actual_cost"})
ORDER_OF_MAPS = "Go visits maps in random order, and the oracle was seen to give dray's answer, too"
UNANSWERED = ("timed_out", "panicked", "bad_input")
"""Why the oracle may have no answer: too slow, a panic of Kubernetes' own code, no device."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One pair that the two answer differently."""

    pair: Pair
    aspects: tuple[str, ...]
    theirs: Answer
    ours: Answer


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of a run."""

    decided: dict[str, int]
    """By feature, the pairs whose outcome depends on it."""
    asked: dict[str, int]
    outcomes: dict[str, int]
    """How many were true, false, refused, failed."""
    differences: tuple[Difference, ...]
    intended: dict[str, int]
    """By reason, the pairs left out."""
    places: tuple[int, int]
    """Of how many compile errors, and of how many both name the same line and column."""
    undecided: dict[str, int]
    """By reason, the pairs that Kubernetes' code itself did not answer."""


def compare(pairs: Sequence[Pair], theirs: Answers, ours: Answers, minor: str) -> Comparison:
    """Compare the answers to ``pairs`` of Kubernetes ``minor``, as in ``1.36``."""
    decided, asked, outcomes = Counter[str](), Counter[str](), Counter[str]()
    intended, undecided, differences = Counter[str](), Counter[str](), list[Difference]()
    placed = list[bool]()
    for pair in pairs:
        asked[pair.tag] += 1
        their, our = theirs[pair.id], ours[pair.id]
        if unanswered := [why for why in UNANSWERED if their[why]]:
            undecided[unanswered[0]] += 1
            continue
        decided[pair.tag] += their["differs"] if pair.witness else True
        outcomes[_outcome(their)] += 1
        if their["compile_error"] is not None and our.get("compile_error") is not None:
            placed.append(_places(their["compile_error"]) == _places(our["compile_error"]))
        if not (aspects := differing(their, our)):
            continue
        reason = reason_for(pair.question(minor), their, our)
        if reason and EVALUATED.issuperset(aspects):
            intended[reason] += 1
        else:
            differences.append(Difference(pair, aspects, their, our))
    return Comparison(
        {tag: decided[tag] for tag in TAGS},
        {tag: asked[tag] for tag in TAGS},
        dict(outcomes),
        tuple(sorted(differences, key=lambda d: (d.pair.tag, len(d.pair.expression)))),
        dict(intended),
        (len(placed), sum(placed)),
        dict(undecided),
    )


def settled(found: Comparison, observed: Answers) -> Comparison:
    """Without the differences in which dray's answer is one that the oracle gives, too."""
    kept = tuple(d for d in found.differences if not _is_observed(d, observed[d.pair.id]))
    gone = len(found.differences) - len(kept)
    intended = found.intended | ({ORDER_OF_MAPS: gone} if gone else {})
    return replace(found, differences=kept, intended=intended)


def _is_observed(difference: Difference, again: Answer) -> bool:
    if not set(difference.aspects) <= EVALUATED:
        return False
    return any(
        not EVALUATED.intersection(differing(again | outcome, difference.ours))
        for outcome in again.get("observed", ())
    )


def differing(theirs: Answer, ours: Answer) -> tuple[str, ...]:
    """The aspects in which two answers differ."""
    if "error" in ours:
        return ("error",)
    return tuple(aspect for aspect in ASPECTS if _seen(theirs, aspect) != _seen(ours, aspect))


def _seen(answer: Answer, aspect: str) -> Any:
    value = answer.get(aspect)
    return value is not None if aspect in ("compile_error", "eval_error") else value


def _places(error: str) -> list[str]:
    return re.findall(r"ERROR: <input>:([0-9]+:[0-9]+)", error)


def _outcome(answer: Answer) -> str:
    if answer["compile_error"] is not None:
        return "refused by the compiler"
    if answer["eval_error"] is not None:
        return "failed"
    return "true" if answer["result"] else "false"


def by_tag(differences: Iterable[Difference]) -> dict[str, list[Difference]]:
    """The differences of each feature, the shortest expression first."""
    found: dict[str, list[Difference]] = {}
    for difference in differences:
        found.setdefault(difference.pair.tag, []).append(difference)
    return found
