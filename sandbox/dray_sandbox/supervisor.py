"""Run a stack until a signal.

``python -m dray_sandbox.supervisor OPTIONS LOCK`` runs a detached stack: every other process ends
with it. LOCK is the descriptor of an inherited file, the stack's lock.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from dray.api.errors import DrayError, PermanentError
from dray_sandbox.background_stack import InterruptedStartError
from dray_sandbox.layout import StackOptions
from dray_sandbox.processes import end_signals, first_done
from dray_sandbox.stack import Progress, Stack
from dray_sandbox.stack_file import StackFile
from dray_sandbox.stack_lock import StackLock


class ProcessEndedError(PermanentError):
    """A process of the stack ended by itself."""


async def run_until_signal(
    options: StackOptions,
    progress: Progress,
    on_ready: Callable[[StackFile], None],
    lock: StackLock | None = None,
) -> None:
    """Start a stack, call ``on_ready``, wait for SIGINT or SIGTERM, then stop it.

    If ``options.restart`` is set, processes that end by themselves are restarted.

    Raises:
        InterruptedStartError: the signal came before the stack was ready.
        ProcessEndedError: one of its processes ended, and is not restarted; the stack was stopped.
        DrayError: it could not be started.
    """
    with end_signals() as ended:
        stack = Stack(options, progress, lock)
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


async def _end_with_first(stack: Stack) -> None:
    raise ProcessEndedError(f"the stack was stopped: {await stack.runner.first_exit()}")


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
                options,
                print_line,
                lambda stack: print_line(f"ready as process {os.getpid()}"),
                StackLock(int(sys.argv[2])),
            )
        )
    except DrayError as error:
        print(error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
