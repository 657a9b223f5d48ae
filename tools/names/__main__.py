"""Checks the names of classes and modules: ``python -m tools.names``."""

import sys

from tools.names.rules import ROOT, problems, read_exceptions


def main() -> int:
    """Print each problem; 1 if there is one."""
    found = problems(ROOT, read_exceptions())
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
