"""Hold a stack until it is told to end, here or in a process of its own.

A detached stack is held by ``python -m dray_sandbox.supervisor OPTIONS``: every other process
dies with it, so ending it (or losing it) ends the stack.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from dray.api.errors import DrayError, PermanentError
from dray_sandbox.certificates import write_secret
from dray_sandbox.layout import StackOptions
from dray_sandbox.paths import stack_directory
from dray_sandbox.stack import Progress, Stack, StackRunsError
from dray_sandbox.stack_file import StackFile, read_stack_file

_POLL_S = 0.05
_STAMP_WIDTH = len("   0.0 s  ")


class InterruptedStartError(PermanentError):
    """A signal came before the stack was ready; nothing is left of it."""


class DetachedStartError(PermanentError):
    """The supervisor ended before its stack was ready."""


class ProcessEndedError(PermanentError):
    """A process of the stack ended although nobody stopped it."""


async def hold(
    options: StackOptions, progress: Progress, on_ready: Callable[[StackFile], None]
) -> None:
    """Start a stack, call ``on_ready``, keep it until SIGINT or SIGTERM, then stop it.

    Raises:
        InterruptedStartError: the signal came before the stack was ready.
        ProcessEndedError: one of its processes ended; the stack was stopped.
        DrayError: it could not be started.
    """
    ended = asyncio.Event()
    with _signals(ended):
        stack = Stack(options, progress)
        starting = asyncio.create_task(stack.start())
        await _either(starting, ended)
        if not starting.done():
            await _cancelled(starting)
            raise InterruptedStartError("interrupted before the stack was ready")
        on_ready(await starting)
        watching = asyncio.create_task(stack.runner.first_exit())
        try:
            await _either(watching, ended)
            if watching.done():
                raise ProcessEndedError(f"the stack was stopped: {await watching}")
        finally:
            await _cancelled(watching)
            progress("stopping")
            await stack.stop()


async def start_detached(options: StackOptions, progress: Progress) -> StackFile:
    """Start a stack that outlives this process; returns when it is ready.

    Raises:
        StackRunsError: a stack of this name runs.
        DetachedStartError: it could not be started; the message is the supervisor's.
    """
    if read_stack_file(options.name) is not None:
        raise StackRunsError(
            f"a stack called {options.name!r} runs already: stop it with "
            f"`dray down --name {options.name}`, or choose another name"
        )
    folder = stack_directory(options.name).parent
    request, log = folder / f"{options.name}.options.json", folder / f"{options.name}.log"
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
    said = 0
    while True:
        code = process.poll()
        lines = _lines(log)
        stack = read_stack_file(name)
        for line in lines[said:] if code is None else ():
            progress(line[_STAMP_WIDTH:])
        said = len(lines)
        if stack is not None and stack.supervisor.pid == process.pid:
            process.returncode = 0  # it is not ours to wait for any more
            return stack
        if code is not None:
            raise DetachedStartError("\n".join(lines) or f"the supervisor ended with {code}")
        await asyncio.sleep(_POLL_S)


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()


async def _either(
    task: asyncio.Task[object] | asyncio.Task[StackFile], ended: asyncio.Event
) -> None:
    waiting = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def _cancelled(task: asyncio.Task[object] | asyncio.Task[StackFile]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, DrayError):
        await task


@contextlib.contextmanager
def _signals(event: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, event.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def main() -> int:
    """Hold the stack whose options are in the file that the first argument names."""
    options = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=StackOptions)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    try:
        asyncio.run(hold(options, say, lambda stack: say(f"ready as process {os.getpid()}")))
    except DrayError as error:
        print(error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
