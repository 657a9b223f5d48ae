"""What a comparison of allocations shows, and the file of the first differences."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from allocation.differences import KINDS, Comparison, Difference
from allocation.features import FEATURES
from allocation.shares import Shares

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """What was compared, and how long the answers took."""

    minor: str
    seed: int
    cases: int
    took_s: float


def as_text(found: Comparison, shares: Shares, run: Run) -> str:
    """A table of the features, the outcomes and the differences by kind."""
    lines = [f"{'feature':34}{'cases':>7}{'share':>8}{'decides':>9}{'of':>6}"]
    for name in FEATURES:
        present = shares.present.get(name, 0)
        line = f"{name:34}{present:>7}{present / max(1, shares.cases):>8.1%}"
        if shares.tried:
            line += f"{shares.decided.get(name, 0):>9}{shares.tried.get(name, 0):>6}"
        lines.append(line)
    counts = sorted(found.outcomes.items())
    outcomes = ", ".join(f"{count} {name} ({count / run.cases:.0%})" for name, count in counts)
    lines.append(f"\nKubernetes {run.minor} says: {outcomes}")
    kinds = Counter(one.kind for one in found.differences)
    lines += [f"{kinds[kind]:>7} {kind}" for kind in KINDS if kinds[kind]]
    if found.undecided:
        lines.append(f"{found.undecided:>7} not decided: Kubernetes ran out of the oracle's time")
    if found.loose:
        lines.append(f"{found.loose:>7} other valid results, the order of pools being random there")
    different = len(found.differences)
    lines.append(
        f"Kubernetes {run.minor}, seed {run.seed}, {run.cases} cases in {run.took_s:.0f} s: "
        f"{run.cases - different - found.undecided} agree, {different} differences"
    )
    return "\n".join(lines)


def as_json(found: Comparison, shares: Shares, run: Run) -> Json:
    """Everything but the cases, for programs."""
    return {
        "k8s": run.minor,
        "seed": run.seed,
        "cases": run.cases,
        "outcomes": found.outcomes,
        "present": dict(shares.present),
        "decided": dict(shares.decided),
        "tried": dict(shares.tried),
        "loose": found.loose,
        "undecided": found.undecided,
        "differences": dict(Counter(one.kind for one in found.differences)),
    }


def as_lines(differences: Sequence[Difference]) -> str:
    """The differences for a reader, and as JSON Lines that both programs answer again."""
    return "\n\n".join(_as_text(one) for one in differences) + "\n"


def _as_text(one: Difference) -> str:
    lines = [f"# {one.case.id}: {one.kind} {one.detail}".rstrip()]
    lines.append(f"# Kubernetes {_answered(one.theirs)}")
    lines.append(f"# dray       {_answered(one.ours)}")
    lines.append(json.dumps(one.case.question))
    return "\n".join(lines)


def _answered(answer: Json) -> str:
    if answer["error"] is not None:
        return f"error: {answer['error']}"
    return json.dumps(answer["allocations"])
