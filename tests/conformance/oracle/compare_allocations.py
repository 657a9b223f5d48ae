"""``make oracle-allocation``: dray and Kubernetes' own allocator, asked the same questions.

Exit codes as `comparing` says; 1 also where a feature is in too few cases, or Kubernetes runs out
of time in too many.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from allocation.cases import cases
from allocation.differences import Comparison, compare, settled
from allocation.minimise import minimised
from allocation.report import Run, as_json, as_lines, as_text
from allocation.shares import Shares, questions_without, shares_of
from comparing import parser_of, run, say, wanted_share
from running import Programs, about_allocations, ask_both, ask_oracle, observe

LEAST_SHARE = 0.05
"""Of the cases of a full run, for each feature that the minor's default gates allow."""
FULL_RUN = 5_000
MOST_UNDECIDED = 0.01
"""Of all cases: more that Kubernetes did not decide in time, and the run shows too little."""
ASKED_WITHOUT = 500
"""Cases that are asked again without each of their features."""


def _compare(minor: str, oracle: Path, arguments: argparse.Namespace) -> int:
    programs = about_allocations(oracle)
    began = time.monotonic()
    found, shares = _asked(programs, minor, arguments)
    done = Run(minor, arguments.seed, arguments.cases, time.monotonic() - began)
    if arguments.output == "json":
        print(json.dumps(as_json(found, shares, done), indent=2))
    else:
        print(as_text(found, shares, done))
    _keep(found, programs, arguments)
    return _code(found, shares, done)


def _asked(
    programs: Programs, minor: str, arguments: argparse.Namespace
) -> tuple[Comparison, Shares]:
    asked = list(cases(arguments.seed, arguments.cases, minor))
    theirs, ours = ask_both(programs, [case.question for case in asked], say)
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
    arguments.differences.write_text(as_lines(small), "utf-8")
    say(f"{len(small)} of the differences, made small, are in {arguments.differences}")


def _code(found: Comparison, shares: Shares, done: Run) -> int:
    code = 1 if found.differences else 0
    if found.undecided > MOST_UNDECIDED * done.cases:
        say(
            f"error: Kubernetes did not decide {found.undecided} cases; give it more of the machine"
        )
        code = 1
    name, share = shares.rarest()
    least = LEAST_SHARE * wanted_share(done.cases, FULL_RUN)
    if done.minor in ("1.36", "1.37") and share < least:
        say(f"error: {name} is in {share:.1%} of the cases; {least:.1%} are wanted")
        code = 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "oracle-allocation",
        "Compare dray with Kubernetes on generated allocation problems.",
        "cases",
        FULL_RUN,
        "how many problems",
    )
    parser.add_argument("--differences", type=Path, help="write the first differences there")
    parser.add_argument("--show", type=int, default=5, help="differences written of each kind")
    return parser


if __name__ == "__main__":
    sys.exit(run(_parser(), _compare))
