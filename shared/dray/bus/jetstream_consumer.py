"""Durable consumers: explicit acknowledgement, redelivery, dead letters."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
import structlog

from dray.api.errors import PermanentError
from dray.bus.connection import Connection
from dray.bus.dead import dead_letter
from dray.bus.jetstream_api import NANO, ask
from dray.bus.jetstream_pull import FlowEndedError, pull
from dray.bus.ports import BusUnavailableError, StreamMissingError
from dray.bus.session import Session
from dray.messages.base import Delivered, Outgoing
from dray.runtime.backoff import Backoff

_ACK_WAIT_S: Final = 30
_BATCH: Final = 16
_UNLIMITED: Final = -1

Publish = Callable[[Outgoing], Awaitable[int]]


class JetStreamDelivery:
    """One delivered message, to be acknowledged once; a lost acknowledgement means redelivery."""

    def __init__(
        self, session: Session, reply: str, message: Delivered, attempts: int, publish: Publish
    ) -> None:
        self.message = message
        self.attempts = attempts
        self._session = session
        self._reply = reply
        self._publish = publish

    async def ack(self) -> None:
        """It was handled."""
        await self._session.send(self._reply, b"+ACK")

    async def retry(self, delay_s: float) -> None:
        """Deliver it again after ``delay_s``."""
        delay = msgspec.json.encode({"delay": int(delay_s * NANO)})
        await self._session.send(self._reply, b"-NAK " + delay)

    async def reject(self, reason: str) -> None:
        """Never deliver it again; publish it as a dead letter."""
        try:
            await self._publish(dead_letter(self.message, reason))
        except StreamMissingError:
            raise
        except PermanentError as error:
            # Without the termination below, the message would be delivered again for ever.
            structlog.get_logger().error(
                "a dead letter is lost", subject=self.message.subject, error=str(error)
            )
        await self._session.send(self._reply, b"+TERM " + " ".join(reason.split()).encode())


async def consume(
    connection: Connection, stream: str, durable: str, subjects: Sequence[str], publish: Publish
) -> AsyncGenerator[JetStreamDelivery, None]:
    """Messages of a durable consumer, across reconnections.

    Raises StreamMissingError, and BusUnavailableError after the bus was closed.
    """
    backoff = Backoff(0.02, 2.0)
    while True:
        session = await connection.next_session()
        try:
            await ask(
                session,
                f"CONSUMER.CREATE.{stream}.{durable}",
                {"stream_name": stream, "config": _config(durable, subjects)},
            )
            flow = pull(session, stream, durable, batch=_BATCH, give_back=True)
            async with contextlib.aclosing(flow) as batches:
                async for batch in batches:
                    backoff.reset()
                    for message, position in batch:
                        reply, attempts = position.reply.decode(), position.attempts
                        yield JetStreamDelivery(session, reply, message, attempts, publish)
        except (FlowEndedError, BusUnavailableError) as error:
            if connection.closed:
                raise BusUnavailableError("the bus was closed") from error
            structlog.get_logger().debug("consuming again", stream=stream, why=str(error))
        await backoff.pause()


def _config(durable: str, subjects: Sequence[str]) -> dict[str, Any]:
    return {
        "durable_name": durable,
        "name": durable,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": _ACK_WAIT_S * NANO,
        "max_deliver": -1,
        # Delayed messages count as unacknowledged, and must not block the others.
        "max_ack_pending": _UNLIMITED,
        "replay_policy": "instant",
        "filter_subjects": list(subjects),
    }
