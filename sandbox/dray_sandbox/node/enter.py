"""Run a command inside a node, as an additional process of the node.

``python -I -S enter.py MACHINE NAMESPACES COMMAND...``: ``MACHINE`` is the file with the process
id of the node's first process, ``NAMESPACES`` are names of /proc/PID/ns, such as ``mnt,pid,net``.

This process waits for the command and ends with the same status. Signals are sent to the process
group, to which both belong; the command dies with this process. It is run by path because it must
start in milliseconds, and it runs as long as the command.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LIBC = ctypes.CDLL(None, use_errno=True)


def _join(first_process: str, namespaces: list[str]) -> None:
    """Join the namespaces. The PID namespace applies only to children."""
    files = [os.open(f"/proc/{first_process}/ns/{name}", os.O_RDONLY) for name in namespaces]
    for name, file in zip(namespaces, files, strict=True):
        if _LIBC.setns(file, 0) != 0:
            raise OSError(ctypes.get_errno(), f"can't join namespace {name}")
        os.close(file)


def _run(command: list[str]) -> int:
    """Run the command; returns its status as os.waitpid does."""
    child = os.fork()
    if child == 0:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.execvp(command[0], command)
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_IGN)  # the command gets it directly; this process waits
    return os.waitpid(child, 0)[1]


def main() -> int:
    machine, namespaces, *command = sys.argv[1:]
    try:
        first_process = Path(machine).read_text().strip()
    except FileNotFoundError:
        print(f"the node does not run: there is no {machine}", file=sys.stderr)
        return 1
    _join(first_process, namespaces.split(","))
    os.chdir("/")
    status = _run(command)
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
