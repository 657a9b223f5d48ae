"""Jittered exponential backoff, so that replicas do not retry all at once."""

import asyncio
import random
from collections.abc import Callable


class Backoff:
    """Waits that grow from ``first_s`` to ``most_s``. Each is random between half and all of it."""

    def __init__(
        self,
        first_s: float = 0.1,
        most_s: float = 10.0,
        *,
        factor: float = 2.0,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._factor = factor
        self._draw = draw
        self._next_s = first_s

    def next_s(self, at_least_s: float = 0.0) -> float:
        """The next wait in seconds. ``at_least_s``: the wait that the server asked for."""
        wait_s = self._next_s * (0.5 + self._draw() / 2)
        self._next_s = min(self._next_s * self._factor, self._most_s)
        return max(wait_s, at_least_s)

    def reset(self) -> None:
        """Start from the first wait again, after a success."""
        self._next_s = self._first_s

    async def pause(self, at_least_s: float = 0.0) -> None:
        """Sleep for the next wait."""
        await asyncio.sleep(self.next_s(at_least_s))
