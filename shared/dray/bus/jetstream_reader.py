"""Reading a stream in order for ever, across reconnections, without loss or repetition."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Final

import structlog

from dray.bus.connection import Connection
from dray.bus.jetstream_pull import FlowEndedError, pull
from dray.bus.jetstream_readings import Readings
from dray.bus.ports import BusUnavailableError, StreamMissingError
from dray.bus.session import Session
from dray.messages.base import Delivered
from dray.messages.rpc import Reading, ReadingReply
from dray.runtime.backoff import Backoff

_BATCH: Final = 512
_REFILL: Final = _BATCH // 2


class JetStreamReader:
    """One reading of one stream: its position, and the stream's time of creation."""

    def __init__(
        self,
        connection: Connection,
        readings: Readings,
        stream: str,
        subjects: Sequence[str],
        start: int,
    ) -> None:
        self._connection = connection
        self._readings = readings
        self._stream = stream
        self._subjects = tuple(subjects)
        self._next = start
        self._created = ""

    async def messages(self) -> AsyncGenerator[Delivered, None]:
        """Every message from the start on. Raises the errors of ``batches``."""
        async with contextlib.aclosing(self.batches()) as batches:
            async for batch in batches:
                for message in batch:
                    yield message

    async def batches(self) -> AsyncGenerator[list[Delivered], None]:
        """The same in batches of all buffered messages. Raises StreamMissingError as ``Bus.read``
        does, and BusUnavailableError after the bus was closed."""
        backoff = Backoff(0.02, 2.0)
        try:
            while True:
                session = await self._connection.next_session()
                try:
                    consumer = await self._consumer(session)
                    async with contextlib.aclosing(self._flow(session, consumer)) as flow:
                        async for batch in flow:
                            backoff.reset()
                            yield batch
                except (FlowEndedError, BusUnavailableError) as error:
                    if self._connection.closed:
                        raise BusUnavailableError("the bus was closed") from error
                    structlog.get_logger().debug(
                        "reading again", stream=self._stream, start=self._next, why=str(error)
                    )
                await backoff.pause()
        finally:
            self._readings.go_on(self._stream)

    async def last(self) -> Delivered | None:
        """The newest message of the reading's subject, or None. Does not retry. Raises
        StreamMissingError, BusUnavailableError."""
        session = self._connection.session()
        wanted = Reading(stream=self._stream, subjects=self._subjects, last_only=True)
        opened = await self._readings.open(session, wanted)
        if not opened.pending:
            return None
        flow = pull(session, self._stream, opened.consumer, batch=1)
        try:
            async with contextlib.aclosing(flow) as arriving:
                async for arrived in arriving:
                    return next(arrived)[0]
        except FlowEndedError as error:
            raise BusUnavailableError(f"{self._stream} was not read: {error}") from error
        return None

    async def stored(self) -> list[Delivered]:
        """The messages that are stored now. Does not retry, and may wait for ever for a message
        that is removed meanwhile. Raises StreamMissingError, BusUnavailableError."""
        session = self._connection.session()
        wanted = Reading(stream=self._stream, subjects=self._subjects, start=self._next)
        opened = await self._readings.open(session, wanted)
        found: list[Delivered] = []
        if not opened.pending:
            return found
        flow = pull(session, self._stream, opened.consumer, batch=_BATCH, refill=_REFILL)
        try:
            async with contextlib.aclosing(flow) as arriving:
                async for arrived in arriving:
                    found += [message for message, _ in arrived]
                    if found[-1].pending == 0:
                        break
        except FlowEndedError as error:
            raise BusUnavailableError(f"{self._stream} was not read: {error}") from error
        return found

    async def _consumer(self, session: Session) -> str:
        """An ephemeral consumer from the next sequence on, unless the stream was re-created."""
        reading = Reading(stream=self._stream, subjects=self._subjects, start=self._next)
        try:
            opened = await self._readings.open(session, reading)
        except BusUnavailableError as error:
            if not session.closed.is_set():
                self._readings.wait(self._stream, str(error))
            raise
        self._readings.go_on(self._stream)
        self._check_life(opened)
        return opened.consumer

    def _check_life(self, opened: ReadingReply) -> None:
        self._created = self._created or opened.created
        if opened.created != self._created:
            raise StreamMissingError(
                f"the stream {self._stream} was made again at {opened.created}; discard what "
                f"was read from the one of {self._created}"
            )
        if self._next > 1 and opened.last_sequence < self._next - 1 and self._has_read:
            raise StreamMissingError(
                f"the stream {self._stream} ends at {opened.last_sequence}, but {self._next - 1} "
                "was read from it: its end was lost"
            )

    _has_read = False

    async def _flow(self, session: Session, consumer: str) -> AsyncGenerator[list[Delivered], None]:
        expected = 1
        flow = pull(session, self._stream, consumer, batch=_BATCH, refill=_REFILL)
        async with contextlib.aclosing(flow) as arriving:
            async for arrived in arriving:
                batch = []
                for message, position in arrived:
                    if position.consumer_sequence != expected:
                        raise FlowEndedError(
                            f"message {position.consumer_sequence} came where {expected} was due"
                        )
                    expected += 1
                    batch.append(message)
                self._next = batch[-1].sequence + 1
                self._has_read = True
                yield batch
