"""Work items by key: one at a time each, retried after growing pauses. Pure but for waiting."""

import asyncio
import time
from contextlib import suppress

FIRST_PAUSE_S = 0.005
LAST_PAUSE_S = 1000.0
"""client-go's DefaultTypedControllerRateLimiter."""


class ControllerQueue:
    """Keys to work on. A key that is added while in work is worked on once more after."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()

    def add(self, key: str) -> None:
        """Work on it now."""
        if key in self._working:
            self._again.add(key)
        else:
            self._due[key] = 0.0
            self._wake.set()

    async def take(self) -> str:
        """The next key that is due; it must be given back by ``done`` or ``failed``."""
        while True:
            now = time.monotonic()
            for key, due in self._due.items():
                if due <= now:
                    del self._due[key]
                    self._working.add(key)
                    return key
            self._wake.clear()
            pause_s = min(self._due.values()) - now if self._due else None
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()

    def done(self, key: str) -> None:
        """The work is finished."""
        self._failures.pop(key, None)
        self._give_back(key)

    def failed(self, key: str) -> float:
        """The work failed: it is due again after the returned pause, in seconds."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        pause_s: float = min(FIRST_PAUSE_S * 2**count, LAST_PAUSE_S)
        self._due[key] = time.monotonic() + pause_s
        self._give_back(key)
        self._wake.set()
        return pause_s

    def _give_back(self, key: str) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)
