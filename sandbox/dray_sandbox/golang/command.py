"""Run a Go toolchain or pip command, and report its progress."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dray_sandbox.processes import bound_to_this_process

_POLL_S = 0.2
_FIRST_INTERVAL_S, _LAST_INTERVAL_S = 5.0, 30.0
_INTERVAL_SHARE = 0.15
"""The time between two reports is this share of the elapsed time, within the bounds above."""


class Ticker:
    """Reports an activity and its duration: every 5 s at first, later every 30 s."""

    def __init__(
        self,
        progress: Callable[[str], None],
        what: str,
        details: Callable[[], str] = lambda: "",
    ) -> None:
        self._progress = progress
        self._what = what
        self._details = details
        self._began_s = self._reported_s = time.monotonic()

    def tick(self) -> None:
        """Report, if the last report is old enough."""
        now = time.monotonic()
        took_s = now - self._began_s
        interval_s = min(max(_FIRST_INTERVAL_S, took_s * _INTERVAL_SHARE), _LAST_INTERVAL_S)
        if now - self._reported_s >= interval_s:
            self._reported_s = now
            self._progress(f"{self._what}: {took_s:.0f} s so far{self._details()}")


def go_progress(log: Path) -> str:
    """The progress of the ``go build -v`` that writes ``log``."""
    lines = log.read_text(errors="replace").splitlines()
    downloaded = sum(line.startswith("go: downloading ") for line in lines)
    compiled = sum(" " not in line for line in lines)
    parts = ((downloaded, "modules downloaded"), (compiled, "packages compiled"))
    return "".join(f", {count} {what}" for count, what in parts if count)


async def run(
    command: Sequence[str],
    log: Path,
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    tick: Callable[[], None],
) -> int:
    """Run a command that ends with this process and task; returns its exit code.

    Its output goes to ``log``; ``tick`` is called while it runs.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: ASYNC220
            bound_to_this_process(command),
            cwd=directory,
            env=os.environ | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # No new session: Linux divides CPU time among sessions before it looks at priorities,
            # and a build of low priority would still get half of it.
            process_group=0,
        )
    try:
        while (code := process.poll()) is None:
            tick()
            await asyncio.sleep(_POLL_S)
        return code
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
