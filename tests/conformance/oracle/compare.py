"""``make oracle``: dray and Kubernetes' own compiler, asked the same generated questions.

Exit codes as `comparing` says; 1 also where a feature decides too few pairs.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from comparing import parser_of, run, say, wanted_share
from differences import compare, settled
from generate import pairs
from report import Run, as_json, as_text
from running import about_selectors, ask_both, observe

from dray_cli.cel_verdict import feature_gates

LEAST_DECIDED = 200
"""Of each feature, for a run of FULL_RUN pairs."""
FULL_RUN = 20_000


def _compare(minor: str, oracle: Path, arguments: argparse.Namespace) -> int:
    programs = about_selectors(oracle)
    began = time.monotonic()
    asked = list(pairs(arguments.seed, arguments.pairs, arguments.gates))
    theirs, ours = ask_both(programs, [pair.question(minor) for pair in asked], say)
    found = compare(asked, theirs, ours, minor)
    again = [difference.pair.question(minor) for difference in found.differences]
    found = settled(found, observe(programs, again)) if again else found
    done = Run(minor, arguments.seed, arguments.pairs, time.monotonic() - began)
    if arguments.output == "json":
        print(json.dumps(as_json(found, done), indent=2, ensure_ascii=False))
    else:
        print(as_text(found, done, arguments.show))
    least = _least_decided(arguments.pairs)
    few = [tag for tag, asked in found.asked.items() if asked and found.decided[tag] < least]
    for tag in few:
        say(f"error: {tag} decides only {found.decided[tag]} pairs; {least:.0f} are wanted")
    return 1 if found.differences or few else 0


def _least_decided(asked: int) -> float:
    """How many pairs each feature must decide in a run of ``asked`` pairs."""
    return LEAST_DECIDED * asked / FULL_RUN * wanted_share(asked, FULL_RUN)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "oracle",
        "Compare dray with Kubernetes on generated selectors.",
        "pairs",
        FULL_RUN,
        "expressions with a device",
    )
    parser.add_argument(
        "--feature-gates",
        dest="gates",
        type=feature_gates,
        default={},
        metavar="NAME=true,…",
        help="that are not as the version has them by default",
    )
    parser.add_argument("--show", type=int, default=5, help="differences printed of each feature")
    return parser


if __name__ == "__main__":
    sys.exit(run(_parser(), _compare))
