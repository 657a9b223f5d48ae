"""A limit on concurrent work: the newest waiter goes first.

Connections end if they are not answered in time. In a queue, each would wait for all those before
it, so that under a flood every answer would come too late.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from dray.api.errors import TemporaryError


class TurnMissedError(TemporaryError):
    """The turn did not come in time."""


class NewestFirst:
    """A semaphore that rejects those that have waited too long. It does so when another one comes
    or leaves, so that only few remain after a flood."""

    def __init__(self, at_once: int, *, patience_s: float, now_s: Callable[[], float]) -> None:
        """``patience_s``: the longest wait for a turn, by the clock ``now_s``."""
        self._free = at_once
        self._patience_s = patience_s
        self._now_s = now_s
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()
        """The waiting turns and since when they wait, oldest first."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and hold it in the block. Raises TurnMissedError."""
        await self._wait()
        try:
            yield
        finally:
            self._next()

    async def _wait(self) -> None:
        if self._free:
            self._free -= 1
            return
        self._end_old()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((self._now_s(), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._next()  # the turn had come
            raise

    def _next(self) -> None:
        self._end_old()
        while self._waiting:
            _, turn = self._waiting.pop()
            if not turn.done():  # a cancelled one stays where it is
                turn.set_result(None)
                return
        self._free += 1

    def _end_old(self) -> None:
        first_s = self._now_s() - self._patience_s
        while self._waiting and self._waiting[0][0] < first_s:
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(
                    TurnMissedError("the connection has ended before its token's turn")
                )
