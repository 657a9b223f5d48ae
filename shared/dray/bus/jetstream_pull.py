"""One pull consumer's message flow, over one session.

nats-py's ``fetch`` costs a timer per message; this asks for a batch and takes what comes.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec
from nats.aio.msg import Msg

from dray.bus.jetstream_api import API, NANO
from dray.bus.link import Session
from dray.messages.base import Delivered

EXPIRES_S: Final = 30.0
HEARTBEAT_S: Final = 5.0
_DONE_STATUSES: Final = ("404", "408")
_HEARTBEAT: Final = "100"
_TOKENS: Final = 9
"""Of ``$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>``;
with a domain and an account two more in front."""


class FlowEndedError(Exception):
    """The consumer or the session is gone: the owner makes a new one and goes on."""


class Position:
    """What the reply subject of a delivered message says."""

    __slots__ = ("attempts", "consumer_sequence", "pending", "sequence", "time_unix_s")

    def __init__(self, reply: str) -> None:
        tokens = reply.split(".")
        tail = tokens[4:] if len(tokens) == _TOKENS else tokens[6:]
        self.attempts = int(tail[0])
        self.sequence = int(tail[1])
        self.consumer_sequence = int(tail[2])
        self.time_unix_s = int(tail[3]) / NANO
        self.pending = int(tail[4])


def delivered(message: Msg, position: Position, stream: str) -> Delivered:
    """The message as the port hands it out."""
    return Delivered(
        subject=message.subject,
        payload=message.data,
        headers=message.headers or {},
        stream=stream,
        sequence=position.sequence,
        time_unix_s=position.time_unix_s,
        pending=position.pending,
    )


async def pull(
    session: Session, stream: str, consumer: str, *, batch: int, give_back: bool = False
) -> AsyncGenerator[tuple[Msg, Position], None]:
    """Messages of a consumer, until it or the session is gone.

    ``give_back``: what was fetched but not taken goes to the next taker at once, instead of
    after the consumer's wait for its acknowledgement.

    Raises:
        FlowEndedError: no message and no heartbeat came, or the server said that it is over.
        BusUnavailableError: the session was lost while asking.
    """
    arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
    here = 0

    async def on_message(message: Msg) -> None:
        nonlocal here
        here += _is_of_stream(message)
        arrived.put_nowait(message)

    inbox = session.client.new_inbox()
    subscription = await session.subscribe(inbox, on_message)
    watcher = asyncio.create_task(_tell_when_lost(session, arrived))
    try:
        while True:
            await _ask(session, inbox, stream, consumer, batch)
            async for message in _batch(arrived, batch):
                here -= 1
                position = Position(message.reply)
                # What the server said when it sent this one; meanwhile more may have come.
                position.pending = max(position.pending, here)
                yield message, position
    finally:
        watcher.cancel()
        if not session.closed.is_set():
            await subscription.unsubscribe()
            if give_back:
                await _give_back(session, arrived)


async def _ask(session: Session, inbox: str, stream: str, consumer: str, batch: int) -> None:
    body: dict[str, Any] = {
        "batch": batch,
        "expires": int(EXPIRES_S * NANO),
        "idle_heartbeat": int(HEARTBEAT_S * NANO),
    }
    subject = f"{API}CONSUMER.MSG.NEXT.{stream}.{consumer}"
    await session.send(subject, msgspec.json.encode(body), reply=inbox)


async def _batch(arrived: asyncio.Queue[Msg | None], batch: int) -> AsyncGenerator[Msg, None]:
    left = batch
    while left:
        message = await _next(arrived)
        status = (message.headers or {}).get("Status")
        if _is_of_stream(message):
            left -= 1
            yield message
        elif status in _DONE_STATUSES:
            return
        elif status != _HEARTBEAT:
            raise FlowEndedError(f"{status} {(message.headers or {}).get('Description', '')}")


def _is_of_stream(message: Msg) -> bool:
    """Whether it is a message of the stream, and not the server's word about the request."""
    return bool(message.reply) or (message.headers or {}).get("Status") is None


async def _next(arrived: asyncio.Queue[Msg | None]) -> Msg:
    if arrived.empty():
        try:
            # Not wait_for: up to Python 3.11 it swallows a cancellation that comes together
            # with a message, and the reader would go on for ever.
            async with asyncio.timeout(HEARTBEAT_S * 2.5):
                message = await arrived.get()
        except TimeoutError:
            raise FlowEndedError("no heartbeat") from None
    else:
        message = arrived.get_nowait()
    if message is None:
        raise FlowEndedError("the connection was lost")
    return message


async def _give_back(session: Session, arrived: asyncio.Queue[Msg | None]) -> None:
    while not arrived.empty():
        message = arrived.get_nowait()
        if message is not None and message.reply:
            await session.send(message.reply, b"-NAK")


async def _tell_when_lost(session: Session, arrived: asyncio.Queue[Msg | None]) -> None:
    await session.closed.wait()
    arrived.put_nowait(None)
