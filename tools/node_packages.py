"""``python -m tools.node_packages``: install the Debian packages that real nodes need."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from dray_sandbox.node.requirements import missing_packages

_APT = ("apt-get", "-qq", "-o", "Dpkg::Use-Pty=0")
_INSTALL = (*_APT, "install", "--yes", "--no-install-recommends")


def main() -> int:
    """Exit code 0: all packages are installed; 1: one can't be installed; prints why."""
    packages = missing_packages()
    if not packages:
        print("real nodes need no further package")
        return 0
    return install(packages)


def install(packages: Sequence[str]) -> int:
    """Install Debian packages; returns the exit code, and prints why if it fails."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"error: install {names} as root, or what your distribution has for them")
        return 1
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in ((*_APT, "update"), (*_INSTALL, *packages)):
        print(" ".join(command), flush=True)
        if subprocess.run(command, env=environment).returncode != 0:
            print(f"error: {names} could not be installed; apt-get says above why")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
