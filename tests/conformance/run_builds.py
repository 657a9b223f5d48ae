"""What ``make conformance`` and ``make test-node`` build from Go modules into the user's cache.

``make build K8S=1.36`` builds all of it. Exit codes: 0 all is there, 2 used wrongly, 3 it can't be
built here, and why.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from oracle.building import build_node_fit, build_oracle

from dray.api.errors import DrayError
from dray_sandbox.controlplane.build import DEFAULT_MINOR, MINORS, build
from dray_sandbox.node.programs import build_programs
from tools.helm import build_helm

Progress = Callable[[str], None]


async def _build_control_plane(minor: str, progress: Progress) -> None:
    await build(progress, minor)


async def _build_node(minor: str, progress: Progress) -> None:
    await build_programs(progress, minor)


async def _build_helm(minor: str, progress: Progress) -> None:
    await build_helm(progress)


async def _build_control_plane_before(minor: str, progress: Progress) -> None:
    if number := MINORS.index(minor):
        await build(progress, MINORS[number - 1])


BUILDS: Final[dict[str, Callable[[str, Progress], Awaitable[object]]]] = {
    "control-plane": _build_control_plane,
    "oracle": build_oracle,
    "node-fit": build_node_fit,
    "node": _build_node,
    "helm": _build_helm,
    # What a stack is upgraded from; the oldest minor has none. Last, because it takes as long as
    # the first and only one part needs it.
    "control-plane-before": _build_control_plane_before,
}
"""By the names that parts have for them. Each takes a minor, and raises DrayError or OSError."""


def chosen(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """A reader of lists separated by commas, of ``known`` names."""

    def read(text: str) -> list[str]:
        names = list(known) if text == "all" else [name.strip() for name in text.split(",")]
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r}: known are {', '.join(known)}")
        return names

    return read


def main() -> int:
    """Build everything for the minors of the command line."""
    parser = argparse.ArgumentParser(prog="make build")
    parser.add_argument("--k8s", type=chosen(MINORS), default=[DEFAULT_MINOR])
    try:
        asyncio.run(_build_all(parser.parse_args().k8s))
    except (DrayError, OSError) as error:
        _say(f"error: {error}")
        return 3
    return 0


async def _build_all(minors: list[str]) -> None:
    for minor in minors:
        for name, make in BUILDS.items():
            await make(minor, _say)
            _say(f"Kubernetes {minor}: {name} is built")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
