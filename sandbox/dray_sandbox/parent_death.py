"""Run a command that gets a signal from the kernel when the process that started it ends.

``python -I -S parent_death.py PARENT SIGNAL COMMAND...`` sets the parent-death signal (on Linux
only), then executes the command, so that a crashed launcher leaves no process behind. It is run by
path because it must start in milliseconds.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def _set_parent_death_signal(parent: int, number: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the signal was set
        sys.exit(1)


if __name__ == "__main__":
    _set_parent_death_signal(int(sys.argv[1]), int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
