"""``make oracle-allocation``: dray and Kubernetes' own allocator, asked the same questions.

Exit codes: 0 no difference, 1 differences or a feature in too few cases, 2 used wrongly,
3 the oracle can't be built here (no Go, no network).
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from allocation.cases import cases
from allocation.differences import Comparison, compare, settled
from allocation.minimise import minimised
from allocation.report import Run, as_json, as_text, told
from allocation.shares import Shares, questions_without, shares_of
from building import DEFAULT_MINOR, MINORS, build_oracle
from running import ProgramFailedError, Programs, about_allocations, ask_both, ask_oracle, observe

from dray.domain.errors import DrayError

LEAST_SHARE = 0.05
"""Of the cases of a full run, for each feature that the minor's default gates allow."""
FULL_RUN = 5_000
ASKED_WITHOUT = 500
"""Cases that are asked again without each of their features."""


def main() -> int:
    """Compare as the command line says; the worst exit code of all minors."""
    arguments = _arguments()
    return max(_compare(minor, arguments) for minor in arguments.k8s)


def _compare(minor: str, arguments: argparse.Namespace) -> int:
    try:
        programs = about_allocations(asyncio.run(build_oracle(minor, _say)))
    except (DrayError, OSError) as error:
        _say(f"error: no oracle of Kubernetes {minor} here: {str(error).splitlines()[0]}")
        return 3
    began = time.monotonic()
    try:
        found, shares = _asked(programs, minor, arguments)
    except ProgramFailedError as error:
        _say(f"error: {error}")
        return 1
    run = Run(minor, arguments.seed, arguments.cases, time.monotonic() - began)
    if arguments.output == "json":
        print(json.dumps(as_json(found, shares, run), indent=2))
    else:
        print(as_text(found, shares, run))
    _keep(found, programs, arguments)
    return _code(found, shares, run)


def _asked(
    programs: Programs, minor: str, arguments: argparse.Namespace
) -> tuple[Comparison, Shares]:
    asked = list(cases(arguments.seed, arguments.cases, minor))
    theirs, ours = ask_both(programs, [case.question for case in asked], _say)
    present, without = questions_without(asked, ASKED_WITHOUT)
    shares = shares_of(present, len(asked), theirs, ask_oracle(programs, without))
    found = compare(asked, theirs, ours)
    again = [one.case.question for one in found.differences]
    return (settled(found, observe(programs, again)) if again else found), shares


def _keep(found: Comparison, programs: Programs, arguments: argparse.Namespace) -> None:
    """Write the first differences of each kind, made small, where the command line says."""
    if arguments.differences is None or not found.differences:
        return
    small = minimised(found.differences, programs, arguments.show)
    arguments.differences.write_text(told(small), "utf-8")
    _say(f"{len(small)} of the differences, made small, are in {arguments.differences}")


def _code(found: Comparison, shares: Shares, run: Run) -> int:
    code = 1 if found.differences else 0
    name, share = shares.rarest()
    if run.cases >= FULL_RUN and run.minor in ("1.36", "1.37") and share < LEAST_SHARE:
        _say(f"error: {name} is in {share:.1%} of the cases; {LEAST_SHARE:.0%} are wanted")
        code = 1
    return code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make oracle-allocation",
        description="Compare dray with Kubernetes on generated allocation problems.",
    )
    parser.add_argument(
        "--k8s", type=_minors, default=[DEFAULT_MINOR], help="minor versions, as in 1.34,1.36"
    )
    parser.add_argument("--cases", type=int, default=FULL_RUN, help="how many problems")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same cases")
    parser.add_argument("--differences", type=Path, help="write the first differences there")
    parser.add_argument("--show", type=int, default=5, help="differences written of each kind")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser.parse_args()


def _minors(text: str) -> list[str]:
    minors = text.split(",")
    if unknown := [minor for minor in minors if minor not in MINORS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}: known are {', '.join(MINORS)}")
    return minors


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
