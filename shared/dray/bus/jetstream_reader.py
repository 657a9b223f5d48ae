"""Reading a stream in order for ever, over reconnections, without loss or repetition."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

import structlog

from dray.bus.jetstream_api import NANO, ask, state_from, stream_info, understood
from dray.bus.jetstream_pull import FlowEndedError, pull
from dray.bus.link import Link
from dray.bus.ports import BusUnavailableError, StreamMissingError
from dray.bus.session import Session
from dray.messages.base import Delivered
from dray.runtime.backoff import Backoff

BATCH: Final = 512
_REFILL: Final = BATCH // 2
_INACTIVE_S: Final = 60


class Reader:
    """One reading of one stream: where it is, and in which life of the stream."""

    def __init__(self, link: Link, stream: str, subjects: Sequence[str], start: int) -> None:
        self._link = link
        self._stream = stream
        self._subjects = list(subjects)
        self._next = start
        self._created = ""

    async def messages(self) -> AsyncGenerator[Delivered, None]:
        """Every message from the start on. Raises as ``batches``."""
        async with contextlib.aclosing(self.batches()) as batches:
            async for batch in batches:
                for message in batch:
                    yield message

    async def batches(self) -> AsyncGenerator[list[Delivered], None]:
        """The same, all that is at hand at once. Raises StreamMissingError as ``Bus.read``, and
        BusUnavailableError once the bus was closed."""
        backoff = Backoff(0.02, 2.0)
        while True:
            session = await self._link.next_session()
            try:
                consumer = await self._consumer(session)
                async with contextlib.aclosing(self._flow(session, consumer)) as flow:
                    async for batch in flow:
                        backoff.reset()
                        yield batch
            except (FlowEndedError, BusUnavailableError) as error:
                if self._link.closed:
                    raise BusUnavailableError("the bus was closed") from error
                structlog.get_logger().debug(
                    "reading again", stream=self._stream, start=self._next, why=str(error)
                )
            await backoff.pause()

    async def _consumer(self, session: Session) -> str:
        """An ephemeral consumer from the next sequence on, in the same life of the stream."""
        config: dict[str, Any] = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._next,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _INACTIVE_S * NANO,
            "filter_subjects": self._subjects,
        }
        body = {"stream_name": self._stream, "config": config}
        answer = await ask(session, f"CONSUMER.CREATE.{self._stream}", body)
        self._check_life(await stream_info(session, self._stream))
        with understood(self._stream):
            return str(answer["name"])

    def _check_life(self, info: dict[str, Any]) -> None:
        state = state_from(info)
        self._created = self._created or state.created
        if state.created != self._created:
            raise StreamMissingError(
                f"the stream {self._stream} was made anew at {state.created}; forget what the "
                f"one of {self._created} said"
            )
        if self._next > 1 and state.last_sequence < self._next - 1 and self._has_read:
            raise StreamMissingError(
                f"the stream {self._stream} ends at {state.last_sequence}, but {self._next - 1} "
                "was read from it: its end was lost"
            )

    _has_read = False

    async def _flow(self, session: Session, consumer: str) -> AsyncGenerator[list[Delivered], None]:
        expected = 1
        flow = pull(session, self._stream, consumer, batch=BATCH, refill=_REFILL)
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
