"""Run a command that dies with the process that started it.

``python -I -S bound.py PARENT COMMAND...`` asks the kernel to kill this process when its
parent dies (Linux; elsewhere nothing happens), then becomes the command. A crashed launcher
so leaves no process behind. Run by path: it must start in milliseconds.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel knew of our wish
        sys.exit(1)


if __name__ == "__main__":
    _die_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
