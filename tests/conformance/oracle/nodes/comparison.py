"""Where the two sides differ, and which predicates decided alone."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nodes.cases import PREDICATES, Case, kind_of

Json = dict[str, Any]
Fails = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A node of a case that one side takes and the other doesn't, or refuses for other reasons."""

    case: Case
    node: str
    theirs: tuple[str, ...]
    ours: tuple[str, ...]

    @property
    def kind(self) -> str:
        """``fit`` if the sets of feasible nodes differ, else ``reasons``."""
        return "reasons" if self.theirs and self.ours else "fit"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of all cases."""

    cases: int
    nodes: int
    feasible: int
    """Nodes that Kubernetes takes."""
    differences: tuple[Difference, ...]
    alone: Counter[str]
    """Cases in which a predicate alone keeps the pod off some node, as Kubernetes has it."""

    def share(self, predicate: str) -> float:
        """Of the cases, those that the predicate decides alone."""
        return self.alone[predicate] / max(1, self.cases)

    def rarest(self) -> tuple[str, float]:
        """The predicate that decides the fewest cases, and their share."""
        name = min(PREDICATES, key=self.share)
        return name, self.share(name)


def compare(asked: Sequence[Case], theirs: dict[str, Fails], ours: dict[str, Fails]) -> Comparison:
    """Both sides' answers, node by node."""
    differences = []
    alone: Counter[str] = Counter()
    nodes = feasible = 0
    for case in asked:
        decided = set()
        for node, failed in theirs[case.id].items():
            nodes += 1
            feasible += not failed
            decided |= _lone(failed)
            mine = ours[case.id][node]
            if _reasons(failed) != _reasons(mine):
                differences.append(Difference(case, node, tuple(failed), tuple(mine)))
        alone.update(decided)
    return Comparison(len(asked), nodes, feasible, tuple(differences), alone)


def as_text(found: Comparison, title: str) -> str:
    """A table of the predicates, and a line that sums up."""
    lines = [f"{'predicate':20}{'decides alone':>14}{'of the cases':>14}"]
    lines += [f"{name:20}{found.alone[name]:>14}{found.share(name):>14.1%}" for name in PREDICATES]
    kinds = Counter(one.kind for one in found.differences)
    lines.append(f"\n{found.feasible} of {found.nodes} nodes are feasible")
    lines += [f"{count:>7} differ in {kind}" for kind, count in sorted(kinds.items())]
    different = len({one.case.id for one in found.differences})
    agree = found.cases - different
    lines.append(f"{title}: {agree} cases agree, {different} differ")
    return "\n".join(lines)


def as_json(found: Comparison) -> Json:
    """For programs."""
    return {
        "cases": found.cases,
        "nodes": found.nodes,
        "feasible": found.feasible,
        "alone": {name: found.alone[name] for name in PREDICATES},
        "differences": dict(Counter(one.kind for one in found.differences)),
    }


def as_lines(differences: Sequence[Difference]) -> str:
    """Differences for a reader: both answers, and the question without the other nodes."""
    return "\n\n".join(_of(one) for one in differences) + "\n"


def _of(one: Difference) -> str:
    question = one.case.question
    small = question | {
        "nodes": [node for node in question["nodes"] if node["metadata"]["name"] == one.node],
        "pods": [pod for pod in question["pods"] if pod["spec"]["nodeName"] == one.node],
    }
    lines = [f"# {one.case.id}, {one.node}: {one.kind}"]
    lines += [f"# Kubernetes {one.theirs or 'takes it'}", f"# dray       {one.ours or 'takes it'}"]
    return "\n".join([*lines, json.dumps(small)])


def _lone(failed: Sequence[str]) -> set[str]:
    kinds = {kind_of(name) for name in failed}
    return kinds if len(kinds) == 1 else set()


def _reasons(failed: Sequence[str]) -> set[str]:
    """A reason for the cordon of a node makes the reason for its taint redundant."""
    kinds = set(failed)
    return kinds - {"taints"} if "unschedulable" in kinds else kinds
