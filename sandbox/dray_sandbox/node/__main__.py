"""``python -m dray_sandbox.node build``: build a node's programs if the cache has none."""

import argparse
import asyncio
import sys

from dray.api.errors import DrayError
from dray_sandbox.controlplane.build import build
from dray_sandbox.node.programs import build_programs


def main() -> int:
    """Exit code 0: all is built; 1: failed; 2: wrong command line; 130: Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m dray_sandbox.node")
    parser.add_subparsers(dest="verb", required=True).add_parser("build")
    parser.parse_args()
    try:
        asyncio.run(_build())
    except DrayError as error:
        _print_line(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _print_line("stopped; the next run continues with what was compiled")
        return 130
    return 0


async def _build() -> None:
    await build(_print_line)
    await build_programs(_print_line)


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
