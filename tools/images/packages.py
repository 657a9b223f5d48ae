"""``python -m tools.images.packages``: install what images and their tests need of Debian."""

import shutil
import sys

from tools.images.builders import PROGRAMS
from tools.node_packages import install

_OF_PROGRAMS = {"debootstrap": "debootstrap", "runc": "runc", "promtool": "prometheus"}
"""Packages by a program of theirs."""


def main() -> int:
    """0: all is there; 1: it can't be installed, and why."""
    missing = [name for program, name in _OF_PROGRAMS.items() if shutil.which(program) is None]
    if not any(shutil.which(program) for program in PROGRAMS[1:]):
        missing.append("podman")
    if not missing:
        print("images and their tests need no further package")
        return 0
    return install(missing)


if __name__ == "__main__":
    sys.exit(main())
