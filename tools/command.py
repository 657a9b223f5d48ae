"""A command in its own process group, with its wall and CPU time."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_STOP_WITHIN_S = 30.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    exit_code: int
    """Negative: the signal that ended it."""
    wall_s: float
    cpu_s: float
    """User and system time of the process and of all descendants that were waited for."""


class Command:
    """Starts at once. Reads nothing; prints to ``log``, else to the output of this process."""

    def __init__(self, words: Sequence[str], log: Path | None = None, *, niceness: int = 0) -> None:
        self._began_s = time.monotonic()
        with contextlib.ExitStack() as files:
            output = None if log is None else files.enter_context(log.open("wb"))
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                process_group=0,
            )
        if niceness:
            os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness)
        self._ended: Ended | None = None

    def poll(self) -> Ended | None:
        """How it ended; None while it runs."""
        if self._ended is None:
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self._ended = Ended(
                    self._process.returncode,
                    time.monotonic() - self._began_s,
                    usage.ru_utime + usage.ru_stime,
                )
        return self._ended

    def stop(self) -> None:
        """End the whole group: SIGINT, then SIGKILL to processes that are left after 30 s."""
        if self._ended is not None:
            return
        deadline = time.monotonic() + _STOP_WITHIN_S
        self._signal(signal.SIGINT)
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self._signal(signal.SIGKILL)
        while self.poll() is None:
            time.sleep(_POLL_S)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def run(
    words: Sequence[str], log: Path | None = None, *, tick: Callable[[], None] = lambda: None
) -> Ended:
    """Run a command; returns how it ended. ``tick`` is called while it runs. If this call is
    interrupted, the command is stopped."""
    command = Command(words, log)
    try:
        while (ended := command.poll()) is None:
            tick()
            time.sleep(_POLL_S)
        return ended
    finally:
        command.stop()
