"""What all comparisons do alike: their command line, the oracle of each minor, their exit codes.

0 no difference, 1 differences or too few cases of some feature, 2 used wrongly, 3 the oracle can't
be built here (no Go, no network).
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from building import DEFAULT_MINOR, MINORS, build_oracle
from running import ProgramFailedError

from dray.api.errors import DrayError

Compare = Callable[[str, Path, argparse.Namespace], int]
"""Compares with the oracle of one minor, at the path given; returns an exit code."""
Build = Callable[[str, Callable[[str], None]], Awaitable[Path]]
"""Builds the oracle of one minor, telling how far it is; returns its path."""


def run(parser: argparse.ArgumentParser, compare: Compare, build: Build = build_oracle) -> int:
    """Compare as the command line says; the worst exit code of all minors."""
    arguments = parser.parse_args()
    return max(_run(minor, arguments, compare, build) for minor in arguments.k8s)


def _run(minor: str, arguments: argparse.Namespace, compare: Compare, build: Build) -> int:
    try:
        oracle = asyncio.run(_built(build, minor))
    except (DrayError, OSError) as error:
        say(f"error: no oracle of Kubernetes {minor} here: {str(error).splitlines()[0]}")
        return 3
    try:
        return compare(minor, oracle, arguments)
    except ProgramFailedError as error:
        say(f"error: {error}")
        return 1


async def _built(build: Build, minor: str) -> Path:
    return await build(minor, say)


def parser_of(
    target: str, description: str, things: str, count: int, what: str
) -> argparse.ArgumentParser:
    """The options that all have; ``--things``, ``count`` by default, says how much is asked."""
    parser = argparse.ArgumentParser(prog=f"make {target}", description=description)
    parser.add_argument(
        "--k8s", type=_minors, default=[DEFAULT_MINOR], help="minor versions, as in 1.34,1.36"
    )
    parser.add_argument(f"--{things}", type=int, default=count, help=what)
    parser.add_argument(
        "--seed", type=int, default=1, help=f"the same seed makes the same {things}"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser


def wanted_share(asked: int, full_run: int) -> float:
    """How much of what a full run must show a run that asks ``asked`` must show.

    Half in a smaller one, which chance weighs on more, and nothing below a fifth of a full run.
    """
    return 1.0 if asked >= full_run else 0.5 if asked * 5 >= full_run else 0.0


def _minors(text: str) -> list[str]:
    minors = text.split(",")
    if unknown := [minor for minor in minors if minor not in MINORS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}: known are {', '.join(MINORS)}")
    return minors


def say(line: str) -> None:
    """Tell the user who waits; standard output is for what was found."""
    print(line, file=sys.stderr, flush=True)
