"""A service that notes its long steps: ``python -m benchmarks.leader_process MODULE FILE``.

A step is work that the event loop runs without a pause. Steps of ``LEAST_S`` and more are written
to the file, one JSON object per line: the end (Unix time), the duration, the CPU time, and the
name of the work.
"""

import asyncio
import asyncio.events
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

LEAST_S: Final = 0.02


class Step(msgspec.Struct):
    """One long step."""

    ended_unix_s: float
    wall_s: float
    cpu_s: float
    what: str


def note_steps(run: Callable[[Any], None], out: TextIO) -> Callable[[Any], None]:
    """``asyncio.Handle._run`` that also writes a line for every long step."""

    def noted(handle: Any) -> None:
        began_s, cpu_s = time.perf_counter(), time.thread_time()
        what = _name(handle)
        run(handle)
        wall_s = time.perf_counter() - began_s
        if wall_s >= LEAST_S:
            step = Step(time.time(), wall_s, time.thread_time() - cpu_s, what or repr(handle))
            out.write(msgspec.json.encode(step).decode() + "\n")
            out.flush()

    return noted


def _name(handle: Any) -> str:
    task = getattr(handle._callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return ""
    name = task.get_name()
    coroutine = getattr(task.get_coro(), "__qualname__", "")
    return f"{name} {coroutine}" if name.startswith("Task-") else name


def main() -> None:
    """Run until a signal."""
    service, file = sys.argv[1:]
    with Path(file).open("w") as out:
        asyncio.events.Handle._run = note_steps(asyncio.events.Handle._run, out)  # type: ignore[method-assign]
        sys.argv = [service]
        runpy.run_module(service, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
