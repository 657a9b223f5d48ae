"""Writes the generated files: ``python -m tools.generate [--check]``."""

import argparse
import sys
from pathlib import Path

from tools.generate import (
    chart,
    commands_page,
    custom_resources,
    grpc_code,
    messages_page,
    nats_configuration,
    observability,
    schemas,
)

ROOT = Path(__file__).parents[2]
OUTPUTS = (
    schemas.OUTPUT,
    messages_page.OUTPUT,
    nats_configuration.OUTPUT,
    custom_resources.OUTPUT,
    chart.OUTPUT,
    commands_page.OUTPUT,
    observability.OUTPUT,
    grpc_code.OUTPUT,
)


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 when ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 if files differ")
    parser.add_argument("--root", type=Path, default=ROOT, help="default: this repository")
    options = parser.parse_args(arguments)
    if not options.check:
        for output in OUTPUTS:
            output.write(options.root)
        return 0
    differences = [line for output in OUTPUTS for line in output.differences(options.root)]
    for line in differences:
        print(line, file=sys.stderr)
    if differences:
        print("run make generate, and look at the change", file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
