"""Run a stack until a signal, in this process or in a detached one.

``python -m dray_sandbox.supervisor OPTIONS`` runs a detached stack: every other process ends with
it.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from dray.api.errors import DrayError, PermanentError
from dray_sandbox.certificates import write_secret
from dray_sandbox.layout import StackOptions
from dray_sandbox.paths import stack_directory
from dray_sandbox.processes import end_signals, first_done
from dray_sandbox.stack import Progress, Stack, StackRunsError
from dray_sandbox.stack_file import StackFile, read_stack_file

_POLL_S = 0.05
_STAMP_WIDTH = len("   0.0 s  ")


class InterruptedStartError(PermanentError):
    """A signal came before the stack was ready; the stack was stopped."""


class DetachedStartError(PermanentError):
    """The supervisor ended before its stack was ready."""


class ProcessEndedError(PermanentError):
    """A process of the stack ended by itself."""


async def run_until_signal(
    options: StackOptions, progress: Progress, on_ready: Callable[[StackFile], None]
) -> None:
    """Start a stack, call ``on_ready``, wait for SIGINT or SIGTERM, then stop it.

    Processes that end by themselves are started again if ``options.restart`` says so.

    Raises:
        InterruptedStartError: the signal came before the stack was ready.
        ProcessEndedError: one of its processes ended, and is not restarted; the stack was stopped.
        DrayError: it could not be started.
    """
    with end_signals() as ended:
        stack = Stack(options, progress)
        starting = asyncio.create_task(stack.start())
        await first_done(starting, ended)
        if not starting.done():
            await _cancel(starting)
            raise InterruptedStartError("interrupted before the stack was ready")
        on_ready(await starting)
        watching = asyncio.create_task(
            stack.supervise() if options.restart else _end_with_first(stack)
        )
        try:
            await first_done(watching, ended)
            if watching.done():
                await watching
        finally:
            await _cancel(watching)
            progress("stopping")
            await stack.stop()


def supervisor_log(name: str) -> Path:
    """Where a detached supervisor prints; it says there what ended and was started again."""
    return stack_directory(name).parent / f"{name}.log"


async def _end_with_first(stack: Stack) -> None:
    raise ProcessEndedError(f"the stack was stopped: {await stack.runner.first_exit()}")


async def start_detached(options: StackOptions, progress: Progress) -> StackFile:
    """Start a stack that runs on after this process; returns when it is ready.

    Raises:
        StackRunsError: a stack of this name runs.
        DetachedStartError: it could not be started; with the supervisor's message.
    """
    if (running := read_stack_file(options.name)) is not None:
        raise StackRunsError(running)
    request = stack_directory(options.name).parent / f"{options.name}.options.json"
    log = supervisor_log(options.name)
    write_secret(request, msgspec.json.encode(options))
    with contextlib.ExitStack() as always, contextlib.ExitStack() as undo:
        always.callback(request.unlink, missing_ok=True)
        process = _spawn(request, log)
        # Popen sends nothing to a process that has ended.
        undo.callback(process.terminate)
        ready = await _until_ready(options.name, process, log, progress)
        undo.pop_all()
    return ready


def _spawn(request: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "dray_sandbox.supervisor", str(request)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


async def _until_ready(
    name: str, process: subprocess.Popen[bytes], log: Path, progress: Progress
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
            process.returncode = 0  # detached: without this, Popen warns that it still runs
            return stack
        if code is not None:
            raise DetachedStartError("\n".join(lines) or f"the supervisor ended with {code}")
        await asyncio.sleep(_POLL_S)


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, DrayError):
        await task


def main() -> int:
    """Run the stack whose options are in the file named by the first argument."""
    options = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=StackOptions)
    began = time.monotonic()

    def print_line(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    try:
        asyncio.run(
            run_until_signal(
                options, print_line, lambda stack: print_line(f"ready as process {os.getpid()}")
            )
        )
    except DrayError as error:
        print(error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
