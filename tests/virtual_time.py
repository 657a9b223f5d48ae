"""Time that jumps to the next timer: what takes minutes is tested in milliseconds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from unittest import mock

from tools.simulation.loop import VirtualLoop

T = TypeVar("T")


class LoopClock:
    """The clock of a loop whose time is virtual."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_unix_s(self) -> float:
        """Virtual wall time."""
        return self._loop.now_unix_s()

    def monotonic_s(self) -> float:
        """Virtual seconds."""
        return self._loop.time()

    async def sleep(self, delay_s: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(delay_s)


def run_virtually(main: Callable[[LoopClock], Awaitable[T]]) -> T:
    """Run ``main``, and cancel what it has left running. The machine's clocks
    show virtual time meanwhile."""
    loop = VirtualLoop()

    async def run() -> T:
        try:
            return await main(LoopClock(loop))
        finally:
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    with (
        mock.patch("time.time", loop.now_unix_s),
        mock.patch("time.monotonic", loop.time),
    ):
        try:
            return loop.run_until_complete(run())
        finally:
            loop.close()
