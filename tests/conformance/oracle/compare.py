"""``make oracle``: dray and Kubernetes' own compiler, asked the same generated questions.

Exit codes: 0 no difference, 1 differences or too few decisions of some feature, 2 used wrongly,
3 the oracle can't be built here (no Go, no network).
"""

import argparse
import asyncio
import json
import sys
import time

from building import DEFAULT_MINOR, MINORS, build_oracle
from differences import Comparison, compare, settled
from generate import pairs
from report import Run, as_json, as_text
from running import ProgramFailedError, about_selectors, ask_both, observe

from dray.domain.errors import DrayError
from dray_cli.cel_verdict import feature_gates

LEAST_DECIDED = 200
"""Of each feature, for a run of FULL_RUN pairs."""
FULL_RUN = 20_000


def main() -> int:
    """Compare as the command line says; the worst exit code of all minors."""
    arguments = _arguments()
    return max(_compare(minor, arguments) for minor in arguments.k8s)


def _compare(minor: str, arguments: argparse.Namespace) -> int:
    try:
        programs = about_selectors(asyncio.run(build_oracle(minor, _say)))
    except (DrayError, OSError) as error:
        _say(f"error: no oracle of Kubernetes {minor} here: {str(error).splitlines()[0]}")
        return 3
    began = time.monotonic()
    asked = list(pairs(arguments.seed, arguments.pairs, arguments.gates))
    try:
        theirs, ours = ask_both(programs, [pair.question(minor) for pair in asked], _say)
    except ProgramFailedError as error:
        _say(f"error: {error}")
        return 1
    found = compare(asked, theirs, ours, minor)
    again = [difference.pair.question(minor) for difference in found.differences]
    found = settled(found, observe(programs, again)) if again else found
    run = Run(minor, arguments.seed, arguments.pairs, time.monotonic() - began)
    if arguments.output == "json":
        print(json.dumps(as_json(found, run), indent=2, ensure_ascii=False))
    else:
        print(as_text(found, run, arguments.show))
    few = _deciding_too_little(found, arguments.pairs)
    for tag in few:
        _say(f"error: {tag} decides only {found.decided[tag]} pairs; {LEAST_DECIDED} are wanted")
    return 1 if found.differences or few else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make oracle", description="Compare dray with Kubernetes on generated selectors."
    )
    parser.add_argument(
        "--k8s", type=_minors, default=[DEFAULT_MINOR], help="minor versions, as in 1.34,1.36"
    )
    parser.add_argument("--pairs", type=int, default=FULL_RUN, help="expressions with a device")
    parser.add_argument(
        "--feature-gates",
        dest="gates",
        type=feature_gates,
        default={},
        metavar="NAME=true,…",
        help="that are not as the version has them by default",
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same pairs")
    parser.add_argument("--show", type=int, default=5, help="differences printed of each feature")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser.parse_args()


def _minors(text: str) -> list[str]:
    minors = text.split(",")
    if unknown := [minor for minor in minors if minor not in MINORS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}: known are {', '.join(MINORS)}")
    return minors


def _deciding_too_little(found: Comparison, count: int) -> list[str]:
    """The features that decide too few pairs of a full run."""
    if count < FULL_RUN:
        return []
    asked = (tag for tag, asked in found.asked.items() if asked)
    return [tag for tag in asked if found.decided[tag] < LEAST_DECIDED]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
