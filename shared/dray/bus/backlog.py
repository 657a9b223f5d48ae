"""Messages that a service publishes in the background: it never waits for the bus."""

import asyncio
from collections import deque

import structlog

from dray.api.errors import DrayError
from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.messages.base import Outgoing
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock, SystemClock


class Backlog:
    """A bounded ordered queue: while the bus is unreachable, the oldest messages are dropped.

    ``capacity`` has the unit of the sizes passed to ``offer``: bytes or messages.
    """

    def __init__(self, bus: Bus, *, capacity: int, what: str, clock: Clock | None = None) -> None:
        self.dropped = 0
        """Messages that were dropped before they were published."""
        self._bus = bus
        self._what = what
        self._clock = clock or SystemClock()
        self._waiting: deque[tuple[Outgoing, int]] = deque()
        self._size = 0
        self._capacity = capacity
        self._offered = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, message: Outgoing, *, size: int = 1) -> None:
        """Publish it soon."""
        while self._waiting and self._size + size > self._capacity:
            self._take_oldest()
            self.dropped += 1
        self._waiting.append((message, size))
        self._size += size
        self._offered.set()

    async def run(self) -> None:
        """Publish for ever, with retries."""
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
                await self._clock.sleep(backoff.next_s())
            except DrayError as error:
                # A permanent refusal: drop the message, so that it does not block later ones.
                self._take_oldest()
                self.dropped += 1
                structlog.get_logger().error(f"{self._what} is lost", error=str(error))

    async def flush(self) -> None:
        """Publish the queued messages. Raises BusUnavailableError, StreamMissingError."""
        while self._waiting:
            message, _ = self._waiting[0]
            await self._bus.publish(message)
            if self._waiting and self._waiting[0][0] is message:
                self._take_oldest()
        self._offered.clear()

    def _take_oldest(self) -> None:
        self._size -= self._waiting.popleft()[1]
