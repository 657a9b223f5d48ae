"""Run a command that gets a signal from the kernel when the process that started it ends.

``python -I -S parent_death.py PARENT SIGNAL COMMAND...`` sets the parent-death signal (on Linux
only), then executes the command, so that a crashed launcher leaves no process behind. It is run by
path because it must start in milliseconds. It also lets the command open many files.
"""

import contextlib
import ctypes
import os
import resource
import sys

_PR_SET_PDEATHSIG = 1
_OPEN_FILES = 65536
"""One process for many nodes has seven open files per node; most shells allow 1,024."""


def _set_parent_death_signal(parent: int, number: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the signal was set
        sys.exit(1)


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS has a lower limit than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    _allow_open_files()
    _set_parent_death_signal(int(sys.argv[1]), int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
