"""Start a detached stack: a ``dray_sandbox.supervisor`` process runs it and outlives this one."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from dray.api.errors import PermanentError
from dray_sandbox.layout import StackOptions
from dray_sandbox.paths import stack_directory
from dray_sandbox.processes import end_signals, first_done
from dray_sandbox.secret_files import write_secret
from dray_sandbox.stack_file import StackFile, StackRunsError, read_stack_file
from dray_sandbox.stack_lock import StackLock, stack_lock

_POLL_S = 0.05
_STAMP_WIDTH = len("   0.0 s  ")


class InterruptedStartError(PermanentError):
    """A signal came before the stack was ready; the stack was stopped."""


class DetachedStartError(PermanentError):
    """The supervisor ended before its stack was ready."""


def supervisor_log(name: str) -> Path:
    """The log of a detached supervisor. It names processes that ended and were restarted."""
    return stack_directory(name).parent / f"{name}.log"


async def start_detached(options: StackOptions, progress: Callable[[str], None]) -> StackFile:
    """Start a stack that outlives this process; returns when it is ready.

    Raises:
        StackRunsError: a stack of this name is running.
        StackLockedError: another process is starting or stopping one.
        DetachedStartError: it could not be started; the message is the supervisor's.
        InterruptedStartError: SIGINT or SIGTERM came before it was ready; it is stopping.
    """
    if (running := read_stack_file(options.name)) is not None:
        raise StackRunsError(running)
    with stack_lock(options.name) as lock:
        return await _start(options, lock, progress)


async def _start(
    options: StackOptions, lock: StackLock, progress: Callable[[str], None]
) -> StackFile:
    request = stack_directory(options.name).parent / f"{options.name}.options.json"
    log = supervisor_log(options.name)
    write_secret(request, msgspec.json.encode(options))
    with contextlib.ExitStack() as always, contextlib.ExitStack() as undo:
        always.callback(request.unlink, missing_ok=True)
        process = _spawn(request, log, lock)
        # Popen sends nothing to a process that has ended.
        undo.callback(process.terminate)
        waiting = asyncio.create_task(_until_ready(options.name, process, log, progress))
        undo.callback(waiting.cancel)
        with end_signals() as ended:
            await first_done(waiting, ended)
        if not waiting.done():
            raise InterruptedStartError("interrupted before the stack was ready")
        ready = waiting.result()
        undo.pop_all()
    return ready


def _spawn(request: Path, log: Path, lock: StackLock) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "dray_sandbox.supervisor", str(request), str(lock.fileno)],
            pass_fds=(lock.fileno,),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


async def _until_ready(
    name: str, process: subprocess.Popen[bytes], log: Path, progress: Callable[[str], None]
) -> StackFile:
    printed = 0
    while True:
        code = process.poll()
        lines = _lines(log)
        stack = read_stack_file(name)
        for line in lines[printed:] if code is None else ():
            progress(line[_STAMP_WIDTH:])
        printed = len(lines)
        if stack is not None and stack.supervisor.pid == process.pid:
            process.returncode = 0  # detached: else Popen warns that it still runs
            return stack
        if code is not None:
            raise DetachedStartError("\n".join(lines) or f"the supervisor ended with {code}")
        await asyncio.sleep(_POLL_S)


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()
