"""``python -m tools.images.packages``: install what images and their tests need of Debian."""

import shutil
import sys
from pathlib import Path

from tools.images.builders import PROGRAMS
from tools.node_packages import install

_OF_PROGRAMS = {"debootstrap": "debootstrap", "runc": "runc", "promtool": "prometheus"}
"""Packages by a program of theirs."""
_NETWORK = ("netavark", "aardvark-dns")
"""What podman needs to resolve names of containers, in packages of that name."""
_HELPERS = Path("/usr/lib/podman")
"""Where Debian has programs of podman's own."""


def main() -> int:
    """0: all is there; 1: it can't be installed, and why."""
    missing = [name for program, name in _OF_PROGRAMS.items() if shutil.which(program) is None]
    if not any(shutil.which(program) for program in PROGRAMS[1:]):
        missing.append("podman")
    missing += [name for name in _NETWORK if not (_HELPERS / name).exists()]
    if not missing:
        print("images and their tests need no further package")
        return 0
    return install(missing)


if __name__ == "__main__":
    sys.exit(main())
