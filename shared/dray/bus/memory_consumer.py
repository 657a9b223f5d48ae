"""A durable consumer in memory: explicit acknowledgement, redelivery without one."""

import heapq
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from dray.bus.memory_store import MemoryStream
from dray.messages.base import Delivered

_ACK_WAIT_S = 30.0
"""Time to acknowledge a message before it is redelivered, as in the real adapter."""

Bury = Callable[[Delivered, str], Awaitable[None]]


@dataclass(slots=True)
class MemoryConsumer:
    """A position in a stream, shared by all consumers with the same name."""

    stream: MemoryStream
    subjects: tuple[str, ...]
    position: int = 1
    _attempts: dict[int, int] = field(default_factory=dict)
    _due: list[tuple[float, int]] = field(default_factory=list)
    """Times at which sequences are delivered again."""

    def take(self) -> tuple[Delivered, int] | None:
        """The next message and its number of deliveries including this one, or None."""
        now_unix_s = self.stream.now_unix_s()
        while self._due and self._due[0][0] <= now_unix_s:
            _, sequence = heapq.heappop(self._due)
            if sequence in self._attempts:
                return self._deliver(sequence)
        for message in self.stream.after(self.position, self.subjects):
            self.position = message.sequence + 1
            self._attempts[message.sequence] = 0
            return self._deliver(message.sequence)
        return None

    def next_due_s(self) -> float | None:
        """Seconds until a message is delivered again, or None."""
        if not self._due:
            return None
        return max(0.0, self._due[0][0] - self.stream.now_unix_s())

    def answer(self, sequence: int) -> None:
        """Never deliver it again."""
        self._attempts.pop(sequence, None)

    def again(self, sequence: int, delay_s: float) -> None:
        """Deliver it again after ``delay_s``."""
        self._due = [entry for entry in self._due if entry[1] != sequence]
        heapq.heapify(self._due)
        self._later(sequence, delay_s)
        self.stream.wake()

    def _deliver(self, sequence: int) -> tuple[Delivered, int] | None:
        message = self.stream.messages.get(sequence)
        if message is None:
            self._attempts.pop(sequence, None)
            return self.take()
        self._attempts[sequence] += 1
        self._later(sequence, _ACK_WAIT_S)
        return message, self._attempts[sequence]

    def _later(self, sequence: int, delay_s: float) -> None:
        heapq.heappush(self._due, (self.stream.now_unix_s() + delay_s, sequence))


class MemoryDelivery:
    """One delivered message, to be acknowledged once."""

    def __init__(
        self, consumer: MemoryConsumer, message: Delivered, attempts: int, *, bury: Bury
    ) -> None:
        self.message = message
        self.attempts = attempts
        self._consumer = consumer
        self._bury = bury

    async def ack(self) -> None:
        """It was handled."""
        self._consumer.answer(self.message.sequence)

    async def retry(self, delay_s: float) -> None:
        """Deliver it again after ``delay_s``."""
        self._consumer.again(self.message.sequence, delay_s)

    async def reject(self, reason: str) -> None:
        """Never deliver it again; publish it as a dead letter."""
        await self._bury(self.message, reason)
        self._consumer.answer(self.message.sequence)
