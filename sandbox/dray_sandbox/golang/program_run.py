"""Run a command of the Go toolchain or of pip: it ends when this process or its task ends."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dray_sandbox.processes import dying_with_this_process

_POLL_S = 0.2


async def run(
    command: Sequence[str],
    log: Path,
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    tick: Callable[[], None],
) -> int:
    """Its exit code, with everything it prints in ``log``; ``tick`` is called while it runs."""
    process = _start(command, log, directory, os.environ | dict(environment or {}))
    try:
        while (code := process.poll()) is None:
            tick()
            await asyncio.sleep(_POLL_S)
        return code
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(
    command: Sequence[str], log: Path, directory: Path | None, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            dying_with_this_process(command),
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # No session of its own: Linux divides CPU time among sessions before it looks at
            # priorities, and a build with a low one would get half of it all the same.
            process_group=0,
        )
