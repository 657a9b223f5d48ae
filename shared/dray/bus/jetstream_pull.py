"""The messages of one pull consumer, over one session.

nats-py's ``fetch`` costs a timer per message. This requests batches and reads the subscription.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final

import msgspec

from dray.bus.bulk_parser import Headers
from dray.bus.jetstream_api import NANO
from dray.bus.ports import BusUnavailableError
from dray.bus.session import Session
from dray.messages.base import Delivered

_EXPIRES_S: Final = 30.0
_HEARTBEAT_S: Final = 5.0
_DONE_STATUSES: Final = ("404", "408")
_HEARTBEAT: Final = "100"
_GIVE_BACK_S: Final = 1.0
_LEFT: Final = "Nats-Pending-Messages"
"""Header with the number of messages that an ended request did not get."""
_DOTS: Final = 8
"""Dots in ``$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>``.
With a domain and an account, there are two more words before these and maybe one after them."""


class FlowEndedError(Exception):
    """The consumer or the session is gone: the caller opens a new one and continues."""


class Position(msgspec.Struct, frozen=True, gc=False):
    """A message's position among those of its consumer."""

    reply: bytes
    """The reply subject, which contains all these numbers."""
    consumer_sequence: int

    @property
    def attempts(self) -> int:
        """How many times it was delivered."""
        return int(_reply_numbers(self.reply)[0])


def _reply_numbers(reply: bytes) -> list[bytes]:
    """Numbers in a reply subject: attempts, both sequences, nanoseconds since 1970, and pending
    messages."""
    if reply.count(b".") == _DOTS:
        return reply.rsplit(b".", 5)[1:]
    return reply.split(b".")[6:11]


class Arrivals:
    """Messages received for the requests, and the number still due."""

    def __init__(self) -> None:
        self.due = 0
        self._messages: deque[tuple[bytes, bytes, bytes, bytes]] = deque()
        self._end = ""
        """Why no more messages will come."""
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def take(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """Handle one arrival: a message, or the server's status of a request."""
        if reply:
            self.due -= 1
            self._messages.append((subject, reply, headers, payload))
        else:
            self._hear(Headers(headers))
        self._news.set()

    def lose(self) -> None:
        """The connection is gone."""
        self._end = "the connection was lost"
        self._news.set()

    async def some(self) -> None:
        """Wait for an arrival. Raises FlowEndedError if the flow has ended and all messages were
        taken."""
        if self._messages:
            return
        if self._end:
            raise FlowEndedError(self._end)
        self._news.clear()
        try:
            # Not wait_for: up to Python 3.11 it swallows a cancellation that arrives together
            # with a message, and the reader would continue for ever.
            async with asyncio.timeout(_HEARTBEAT_S * 2.5):
                await self._news.wait()
        except TimeoutError:
            raise FlowEndedError("no heartbeat") from None

    def first(self, count: int, stream: str) -> Iterator[tuple[Delivered, Position]]:
        """The first messages of those received; each is taken when the iterator reaches it."""
        messages = self._messages
        for _ in range(count):
            subject, reply, headers, payload = messages.popleft()
            _, sequence, consumer_sequence, time_unix_ns, pending = _reply_numbers(reply)
            message = Delivered(
                # A publisher may use any bytes below its prefix.
                subject.decode("utf-8", "replace"),
                payload,
                Headers(headers),
                stream,
                int(sequence),
                int(time_unix_ns) / NANO,
                # The server's count at the time of this message; more may have arrived since.
                max(int(pending), len(messages)),
            )
            yield message, Position(reply, int(consumer_sequence))

    def rest(self) -> list[bytes]:
        """Reply subjects of the messages that were not taken."""
        return [reply for _, reply, _, _ in self._messages]

    def _hear(self, word: Headers) -> None:
        code, words = word.status
        if code in _DONE_STATUSES:
            self.due = max(0, self.due - int(word.get(_LEFT, self.due)))
        elif code != _HEARTBEAT:
            self._end = self._end or f"{code} {words}"


async def pull(
    session: Session,
    stream: str,
    consumer: str,
    *,
    batch: int,
    refill: int = 0,
    give_back: bool = False,
) -> AsyncGenerator[Iterator[tuple[Delivered, Position]], None]:
    """Messages of a consumer in batches, until the consumer or the session is gone.

    At most ``batch`` messages are requested or buffered. When at most ``refill`` are left, more are
    requested, so that the server sends while earlier ones are processed. ``give_back``: messages
    that were fetched but not taken are returned at once. Otherwise they are delivered again after
    the consumer's wait for their acknowledgement.

    Raises:
        FlowEndedError: no message and no heartbeat came, or the server ended the request.
        BusUnavailableError: the session was lost during a request.
    """
    arrivals = Arrivals()
    inbox = session.client.new_inbox()
    taking = await session.take(inbox, arrivals.take)
    watcher = asyncio.create_task(_tell_when_lost(session, arrivals))
    try:
        while True:
            at_hand = arrivals.due + len(arrivals)
            if at_hand <= refill:
                arrivals.due += batch - at_hand
                await _ask(session, inbox, stream, consumer, batch - at_hand)
                # Send the request before the buffered messages are processed.
                await asyncio.sleep(0)
            await arrivals.some()
            count = min(len(arrivals), arrivals.due + len(arrivals) - refill)
            if count > 0:
                yield arrivals.first(count, stream)
    finally:
        watcher.cancel()
        if not session.closed.is_set():
            await taking.unsubscribe()
            if give_back:
                # If not, they are delivered again after the wait for their acknowledgement.
                with contextlib.suppress(BusUnavailableError, TimeoutError):
                    async with asyncio.timeout(_GIVE_BACK_S):
                        for reply in arrivals.rest():
                            await session.send(reply.decode(), b"-NAK")


async def _ask(session: Session, inbox: str, stream: str, consumer: str, batch: int) -> None:
    body: dict[str, Any] = {
        "batch": batch,
        "expires": int(_EXPIRES_S * NANO),
        "idle_heartbeat": int(_HEARTBEAT_S * NANO),
    }
    subject = f"{session.api}CONSUMER.MSG.NEXT.{stream}.{consumer}"
    await session.send(subject, msgspec.json.encode(body), reply=inbox)


async def _tell_when_lost(session: Session, arrivals: Arrivals) -> None:
    await session.closed.wait()
    arrivals.lose()
