"""``python -m tools.images.packages``: install Debian packages for images and their tests."""

import shutil
import sys
from pathlib import Path

from tools.images.builders import PROGRAMS
from tools.node_packages import install

_OF_PROGRAMS = {"debootstrap": "debootstrap", "runc": "runc", "promtool": "prometheus"}
"""Packages by a program of theirs."""
_NETWORK = ("netavark", "aardvark-dns")
"""Programs with which podman resolves names of containers; their packages have the same names."""
_HELPERS = Path("/usr/lib/podman")
"""Debian's folder of podman's own programs."""


def main() -> int:
    """Exit code 0: all packages are installed; 1: one can't be installed; prints why."""
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
