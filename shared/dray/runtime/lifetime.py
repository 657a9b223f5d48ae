"""The life of a process: named root loops until a signal, then an orderly end."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

import structlog

from dray.api.errors import DrayError
from dray.runtime.health import HealthPages

Loop = Callable[[], Coroutine[Any, Any, None]]
"""A root task: runs until cancelled."""

_SECOND_SIGNAL = 130
"""Exit code if a second signal interrupts the orderly end."""


_STUCK = 1
"""Exit code if loops don't end in time."""


_LEAST_SHARE = 0.1
"""Share of the closing time that each step has at least, even if earlier steps took long."""


class LoopEndedError(DrayError):
    """A root loop returned without being cancelled: a bug."""


async def serve(
    *,
    health: HealthPages | None = None,
    close: Sequence[Callable[[], Awaitable[None]]] = (),
    grace_s: float = 10.0,
    **loops: Loop,
) -> None:
    """Run the loops until SIGTERM or SIGINT, or until one fails or returns.

    On a signal: the process becomes not ready, the loops are cancelled within ``grace_s``, then the
    steps of ``close`` run in order. Together they have another ``grace_s``, but each step has at
    least a tenth of it. A second signal exits at once. Health pages, if given, are started first.

    Raises:
        LoopEndedError: a loop returned.
        BaseExceptionGroup: loops failed. Each failure is one member.
    """
    log = structlog.get_logger()
    stopping = asyncio.Event()
    async with _signals(stopping):
        if health is not None:
            await health.start()
        try:
            await _run_until(stopping, health, grace_s, loops)
        finally:
            await _finish([*close, *([health.stop] if health else [])], grace_s)
            log.info("stopped")


async def _run_until(
    stopping: asyncio.Event, health: HealthPages | None, grace_s: float, loops: dict[str, Loop]
) -> None:
    fault = _Fault(grace_s)
    try:
        await _run(stopping, health, grace_s, loops, fault)
    finally:
        fault.over()


async def _run(
    stopping: asyncio.Event,
    health: HealthPages | None,
    grace_s: float,
    loops: dict[str, Loop],
    fault: "_Fault",
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_root(name, loop, fault), name=name) for name, loop in loops.items()
        ]
        waiter = group.create_task(stopping.wait(), name="signals")
        await waiter
        if health is not None:
            health.drain()
        structlog.get_logger().info("stopping", loops=[task.get_name() for task in tasks])
        for task in tasks:
            task.cancel()
        _, stuck = await asyncio.wait(tasks, timeout=grace_s)
        if stuck:
            names = sorted(task.get_name() for task in stuck)
            structlog.get_logger().error("loops did not end in time", loops=names)
            os._exit(_STUCK)


async def _root(name: str, loop: Loop, fault: "_Fault") -> None:
    is_cancelled = False
    try:
        await loop()
        raise LoopEndedError(f"the loop {name!r} returned; it must run until it is cancelled")
    except asyncio.CancelledError:
        is_cancelled = True
        raise
    finally:
        if not is_cancelled:
            fault.happened()


class _Fault:
    """Ends the process if the other loops don't end in time after a loop has failed."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._timer: asyncio.TimerHandle | None = None

    def happened(self) -> None:
        """Start the time limit for the other loops."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._grace_s, os._exit, _STUCK)

    def over(self) -> None:
        """The other loops have ended."""
        if self._timer is not None:
            self._timer.cancel()


async def _finish(close: Sequence[Callable[[], Awaitable[None]]], grace_s: float) -> None:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + grace_s
    for step in close:
        try:
            # While the bus is unreachable several steps wait for it: their timeouts would add up to
            # more than the kubelet's grace period.
            async with asyncio.timeout(max(until_s - loop.time(), grace_s * _LEAST_SHARE)):
                await step()
        except (TimeoutError, DrayError, OSError) as error:
            structlog.get_logger().warning(
                "did not close in order", step=repr(step), error=str(error)
            )


@contextlib.asynccontextmanager
async def _signals(stopping: asyncio.Event) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stopping.is_set():
            os._exit(_SECOND_SIGNAL)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
