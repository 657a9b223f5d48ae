"""Long work that lets other tasks of the event loop run."""

import asyncio
import time
from typing import Final

_MOST_S: Final = 0.005


class TimeSlice:
    """The time that a task has run since it last let other tasks run."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()

    async def pause(self) -> None:
        """Let other tasks run if this one has run for 5 ms."""
        if time.perf_counter() - self._began_s >= _MOST_S:
            await asyncio.sleep(0)
            self._began_s = time.perf_counter()
