"""Checks the names of classes, modules, functions and constants: ``python -m tools.names``."""

import sys

from tools.names.private_names import public_problems
from tools.names.rules import ROOT, problems, read_exceptions


def main() -> int:
    """Print each problem; 1 if there is one."""
    found = [*problems(ROOT, read_exceptions()), *public_problems(ROOT)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
