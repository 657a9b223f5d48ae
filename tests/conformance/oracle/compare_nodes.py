"""``make oracle-nodes``: dray and kube-scheduler's own plugins, asked which nodes take a pod.

Exit codes as `comparing` says; 1 also where a predicate decides too few cases alone.
"""

import argparse
import json
import sys
from pathlib import Path

from building import build_node_fit
from comparing import parser_of, run, say
from nodes.cases import cases
from nodes.comparison import Comparison, as_json, as_lines, as_text, compare
from nodes.dray_side import answer
from running import ProgramFailedError, Programs, ask_oracle

LEAST_SHARE = 0.05
"""Of the cases of a full run, for each predicate: those that it decides alone."""
FULL_RUN = 1_000


def _compare(minor: str, oracle: Path, arguments: argparse.Namespace) -> int:
    asked = list(cases(arguments.seed, arguments.cases, minor))
    answers = ask_oracle(Programs((str(oracle),), ()), [case.question for case in asked])
    failed = [one for one in answers.values() if "error" in one]
    if failed or len(answers) != len(asked):
        why = failed[0] if failed else f"{len(answers)} answers to {len(asked)} questions"
        raise ProgramFailedError(f"kube-scheduler's plugins did not answer: {why}")
    theirs = {name: one["fails"] for name, one in answers.items()}
    # dray reads what an API server stores: pods with their defaults.
    ours = {case.id: answer(case.question, answers[case.id]) for case in asked}
    found = compare(asked, theirs, ours)
    if arguments.output == "json":
        print(json.dumps({"k8s": minor, "seed": arguments.seed} | as_json(found), indent=2))
    else:
        print(as_text(found, f"Kubernetes {minor}, seed {arguments.seed}, {len(asked)} cases"))
    if arguments.differences is not None and found.differences:
        arguments.differences.write_text(as_lines(found.differences[: arguments.show]), "utf-8")
        say(f"the first differences are in {arguments.differences}")
    return _code(found)


def _code(found: Comparison) -> int:
    code = 1 if found.differences else 0
    name, share = found.rarest()
    if found.cases >= FULL_RUN and share < LEAST_SHARE:
        say(f"error: {name} alone decides {share:.1%} of the cases; {LEAST_SHARE:.0%} are wanted")
        code = 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "oracle-nodes",
        "Compare dray's node fit with kube-scheduler's plugins on generated pods and nodes.",
        "cases",
        1_500,
        "how many pods, each with 8 nodes",
    )
    parser.add_argument("--differences", type=Path, help="write the first differences there")
    parser.add_argument("--show", type=int, default=20, help="how many differences are written")
    return parser


if __name__ == "__main__":
    sys.exit(run(_parser(), _compare, build_node_fit))
