"""Clocks: the machine's clock, and a clock that tests set."""

import asyncio
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time in seconds, and waiting."""

    def now_unix_s(self) -> float:
        """Seconds since 1970 UTC."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""

    async def sleep(self, delay_s: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock."""

    def now_unix_s(self) -> float:
        """Seconds since 1970 UTC."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        """Wait."""
        await asyncio.sleep(delay_s)


class ManualClock:
    """A clock that stands still until a test advances it."""

    def __init__(self, now_unix_s: float = 1_700_000_000.0) -> None:
        self._now_unix_s = now_unix_s
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_unix_s(self) -> float:
        """Seconds since 1970 UTC, as set."""
        return self._now_unix_s

    def monotonic_s(self) -> float:
        """The same time, which never goes back, either."""
        return self._now_unix_s

    async def sleep(self, delay_s: float) -> None:
        """Wait until the clock has been advanced by ``delay_s``."""
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_unix_s + delay_s, next(self._order), woken))
        await woken

    async def advance(self, by_s: float) -> None:
        """Advance by ``by_s`` seconds, and run the tasks that waited for that."""
        until_s = self._now_unix_s + by_s
        while self._sleepers and self._sleepers[0][0] <= until_s:
            at_s, _, woken = heapq.heappop(self._sleepers)
            self._now_unix_s = max(self._now_unix_s, at_s)
            if not woken.done():
                woken.set_result(None)
            await asyncio.sleep(0)
        self._now_unix_s = until_s
        await asyncio.sleep(0)
