"""What a comparison shows: a table of the features, the first differences, a line of totals."""

import json
from dataclasses import dataclass
from typing import Any

from differences import Comparison, Difference, by_tag


@dataclass(frozen=True, slots=True)
class Run:
    """What was compared, and how long the answers took."""

    minor: str
    seed: int
    pairs: int
    took_s: float


def as_text(found: Comparison, run: Run, most_shown: int) -> str:
    """The report; of each feature at most ``most_shown`` differences."""
    grouped = by_tag(found.differences)
    lines = [f"{'feature':34}{'decides':>8}{'of':>7}{'different':>11}"]
    for tag, decided in found.decided.items():
        count = len(grouped.get(tag, []))
        lines.append(f"{tag:34}{decided:>8}{found.asked[tag]:>7}{count:>11}")
    for tag, differences in grouped.items():
        lines.append(f"\n== {tag}: {len(differences)} differences")
        lines += [_shown(difference) for difference in differences[:most_shown]]
    lines += [f"\nintended, {count} times: {why}" for why, count in found.intended.items()]
    refused, placed = found.places
    lines.append(f"\ncompile errors: {placed} of {refused} name every place that Kubernetes names")
    for reason, count in found.undecided.items():
        lines.append(f"\nleft out, {count} times: the oracle says {reason}")
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(found.outcomes.items()))
    lines.append(
        f"\nKubernetes {run.minor}, seed {run.seed}, {run.pairs} pairs ({outcomes}) "
        f"in {run.took_s:.0f} s: {len(found.differences)} differences"
    )
    return "\n".join(lines)


def _shown(difference: Difference) -> str:
    pair, theirs, ours = difference.pair, difference.theirs, difference.ours
    lines = [f"{pair.id} differs in {', '.join(difference.aspects)}", f"  {pair.expression!r}"]
    for aspect in difference.aspects:
        lines.append(f"    {aspect}: Kubernetes {_short(theirs.get(aspect))}")
        lines.append(f"    {' ' * len(aspect)}  dray       {_short(ours.get(aspect))}")
    if not set(difference.aspects) <= {"cost", "compile_error", "admission"}:
        device = json.dumps(pair.device, ensure_ascii=False)
        lines.append(f"    driver {pair.driver!r}, device {device}")
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 240 else text[:237] + "..."


def as_json(found: Comparison, run: Run) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "k8s": run.minor,
        "seed": run.seed,
        "pairs": run.pairs,
        "decided": found.decided,
        "asked": found.asked,
        "outcomes": found.outcomes,
        "intended": found.intended,
        "undecided": found.undecided,
        "compileErrors": dict(zip(("both", "samePlace"), found.places, strict=True)),
        "differences": [
            {
                "tag": difference.pair.tag,
                "differs": difference.aspects,
                "question": difference.pair.question(run.minor),
                "kubernetes": difference.theirs,
                "dray": difference.ours,
            }
            for difference in found.differences
        ],
    }
