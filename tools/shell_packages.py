"""``python -m tools.shell_packages``: install the shells that `make test-shells` tries and this
machine lacks, with apt-get, as root."""

import shutil
import sys

from tools.node_packages import install

_SHELLS = ("bash", "zsh", "fish")


def main() -> int:
    """Exit code 0: all are installed; 1: one can't be installed; prints why."""
    missing = [shell for shell in _SHELLS if shutil.which(shell) is None]
    return install(missing) if missing else 0


if __name__ == "__main__":
    sys.exit(main())
