"""Hints to the bus, off the answer's path: pods are seen by watch too."""

import asyncio
from collections import deque

import structlog

from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.messages.base import Outgoing
from dray.runtime.backoff import Backoff


class Publisher:
    """A bounded queue: while the bus is away the oldest hints go first."""

    def __init__(self, bus: Bus, *, capacity: int, what: str = "pod.requested") -> None:
        self._bus = bus
        self._what = what
        self._waiting: deque[Outgoing] = deque()
        self._capacity = capacity
        self._offered = asyncio.Event()
        self.dropped = 0
        """Hints that were never published, because the bus was away for too long."""

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, message: Outgoing) -> None:
        """Publish it soon."""
        if len(self._waiting) >= self._capacity:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(message)
        self._offered.set()

    async def run(self) -> None:
        """Publish for ever, in order, with retries."""
        backoff = Backoff()
        while True:
            await self._offered.wait()
            try:
                await self.flush()
                backoff.reset()
            except (BusUnavailableError, StreamMissingError) as error:
                structlog.get_logger().warning(
                    f"{self._what} waits for the bus", waiting=len(self), error=str(error)
                )
                await backoff.pause()

    async def flush(self) -> None:
        """Publish what waits. Raises BusUnavailableError, StreamMissingError."""
        while self._waiting:
            message = self._waiting[0]
            await self._bus.publish(message)
            if self._waiting and self._waiting[0] is message:
                self._waiting.popleft()
        self._offered.clear()
