"""A limit of what is done at once, where the newest of those that wait goes first.

Connections end if they are not answered in time. In a queue each would wait as long as those before
it, so that under a flood every answer would come too late.
"""

import asyncio
from types import TracebackType


class NewestFirst:
    """As ``asyncio.Semaphore``, but for the order."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: list[asyncio.Future[None]] = []

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._next()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._next()

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():  # a cancelled one stays where it is
                turn.set_result(None)
                return
        self._free += 1
