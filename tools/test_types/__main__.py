"""Checks the names that tests and benchmarks use: ``python -m tools.test_types``.

Tests that need a real control plane rarely run, so they could keep the old name of a renamed
attribute. mypy finds it. Only some of mypy's error codes count here; for the product, all count.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CODES: Final = ("attr-defined", "call-arg", "name-defined", "import-not-found")


@dataclass(frozen=True, slots=True)
class Roots:
    """Files that are checked together."""

    paths: tuple[str, ...]
    """Files and folders, relative to the repository."""
    scripts: str = ""
    """Folder from which the files import each other by their bare names, as scripts do."""


PROGRAMS: Final = (
    Roots(("tests/conformance/oracle",), "tests/conformance/oracle"),
    Roots(
        tuple(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/conformance/run*.py")),
        "tests/conformance",
    ),
)
TESTS: Final = Roots(("tests", "benchmarks"))


def relevant(output: str) -> list[str]:
    """The lines of mypy's output whose code is one of ``CODES``."""
    return [
        line for line in output.splitlines() if line.endswith(tuple(f"[{code}]" for code in CODES))
    ]


def errors_in(roots: Roots) -> list[str]:
    """Relevant errors in the files of ``roots``.

    Raises RuntimeError if mypy could not check the files.
    """
    command = [sys.executable, "-m", "mypy", "--explicit-package-bases", *roots.paths]
    environment = {**os.environ, "MYPYPATH": roots.scripts}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(
            f"mypy could not check {', '.join(roots.paths)}: {done.stdout}{done.stderr}"
        )
    elsewhere = () if roots.scripts else tuple(path for one in PROGRAMS for path in one.paths)
    return [
        line
        for line in relevant(done.stdout)
        if line.startswith(roots.paths) and not line.startswith(elsewhere)
    ]


def main() -> int:
    """Print each error; 1 if there is one."""
    found = [line for roots in (TESTS, *PROGRAMS) for line in errors_in(roots)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
