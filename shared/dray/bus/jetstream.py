"""The real bus: NATS with JetStream, through nats-py."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import nats.errors
import structlog
from nats.aio.msg import Msg

from dray.bus.jetstream_api import (
    TIMEOUT_S,
    ask,
    ensure_stream,
    last_message,
    state_from,
    store,
    stream_info,
)
from dray.bus.jetstream_consumer import consume
from dray.bus.jetstream_leases import Leases
from dray.bus.jetstream_reader import Reader
from dray.bus.link import Link
from dray.bus.ports import (
    BusUnavailableError,
    Delivery,
    Fence,
    StreamMissingError,
    StreamSpec,
    StreamState,
)
from dray.bus.session import NoRespondersError, unsubscribe
from dray.domain.errors import DrayError
from dray.messages.base import Delivered, Outgoing

CLOSE_BUDGET_S: Final = 10.0
_MESSAGE_ID: Final = "Nats-Msg-Id"
_EXPECTED: Final = "Nats-Expected-Last-Sequence"
_AFTER: Final = "Nats-Expected-Last-Msg-Id"
_EXPECTED_OF: Final = "Nats-Expected-Last-Subject-Sequence"
_OF_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"

Handler = Callable[[bytes], Awaitable[bytes | None]]


async def connect(
    servers: str, *, name: str, user: str = "", password: str = "", wait_s: float = 3.0
) -> "JetStreamBus":
    """The bus; it keeps connecting for ever.

    ``servers`` are separated by commas. Returns once connected, or after ``wait_s`` without:
    then ``connected`` is False, calls raise BusUnavailableError, and readers wait.
    """
    link = Link(servers, name=name, user=user, password=password)
    link.start()
    try:
        async with asyncio.timeout(wait_s):
            await link.next_session()
    except TimeoutError:
        structlog.get_logger().warning("NATS can't be reached yet", servers=servers)
    return JetStreamBus(link)


class JetStreamBus:
    """``Bus`` over one connection."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._leases = Leases(link)

    @property
    def connected(self) -> bool:
        """Whether a connection is up."""
        return self._link.connected

    @property
    def max_payload_bytes(self) -> int | None:
        """See ``Bus.max_payload_bytes``."""
        return self._link.max_payload_bytes

    async def ensure(self, stream: StreamSpec) -> bool:
        """See ``Bus.ensure``; a stream with another configuration is brought up to the spec's."""
        return await ensure_stream(self._link, stream)

    async def delete_stream(self, name: str) -> None:
        """See ``Bus.delete_stream``."""
        try:
            await ask(self._link.session(), f"STREAM.DELETE.{name}")
        except StreamMissingError:
            return

    async def state(self, stream: str) -> StreamState | None:
        """See ``Bus.state``."""
        try:
            return state_from(await stream_info(self._link.session(), stream))
        except StreamMissingError:
            return None

    async def publish(self, message: Outgoing, *, fence: Fence | None = None) -> int:
        """See ``Bus.publish``."""
        if fence is not None:
            expected = {_EXPECTED_OF: str(fence.last_sequence), _OF_SUBJECT: fence.subject}
            message = replace(message, headers={**message.headers, **expected})
        return await store(self._link.session(), message, timeout_s=TIMEOUT_S)

    async def append(
        self, message: Outgoing, *, expected_last: int, identity: str = "", after: str = ""
    ) -> int:
        """See ``Bus.append``."""
        # The message's own id would let the server drop a record as a duplicate.
        fence = {_MESSAGE_ID: identity, _EXPECTED: str(expected_last), _AFTER: after}
        headers = {key: value for key, value in message.headers.items() if key != _MESSAGE_ID}
        headers.update({key: value for key, value in fence.items() if value})
        fenced = replace(message, headers=headers)
        return await store(self._link.session(), fenced, timeout_s=TIMEOUT_S)

    async def last(self, stream: str, subject: str) -> Delivered | None:
        """See ``Bus.last``; asks the server that takes the writes, so what is stored is seen."""
        return await last_message(self._link.session(), stream, subject)

    def read(
        self, stream: str, *, subjects: Sequence[str] = (), start: int = 1
    ) -> AsyncIterator[Delivered]:
        """See ``Bus.read``."""
        return Reader(self._link, stream, subjects, start).messages()

    def read_batches(
        self, stream: str, *, subjects: Sequence[str] = (), start: int = 1
    ) -> AsyncIterator[Sequence[Delivered]]:
        """See ``Bus.read_batches``."""
        return Reader(self._link, stream, subjects, start).batches()

    def consume(
        self, stream: str, *, durable: str, subjects: Sequence[str] = ()
    ) -> AsyncIterator[Delivery]:
        """See ``Bus.consume``. Raises StreamMissingError when the stream is missing."""
        return consume(self._link, stream, durable, subjects, self.publish)

    async def notify(self, subject: str, payload: bytes) -> None:
        """See ``Bus.notify``."""
        await self._link.session().send(subject, payload)

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """See ``Bus.request``."""
        try:
            reply = await self._link.session().request(subject, payload, timeout_s=timeout_s)
        except NoRespondersError:
            raise BusUnavailableError(f"nobody answers {subject} just now") from None
        answer: bytes = reply.data
        return answer

    async def serve(self, subject: str, handler: Handler, *, queue: str) -> None:
        """See ``Bus.serve``: runs until the bus closes or the task is cancelled."""
        async with asyncio.TaskGroup() as answering:

            async def on_question(question: Msg) -> None:
                answering.create_task(_answer(question, handler))

            while not self._link.closed:
                try:
                    session = await self._link.next_session()
                    subscription = await session.subscribe(subject, on_question, queue=queue)
                except BusUnavailableError:
                    await asyncio.sleep(0)
                    continue
                try:
                    await session.closed.wait()
                finally:
                    if not session.closed.is_set():
                        await unsubscribe(subscription)

    async def acquire(self, key: str, holder: str, *, ttl_s: float) -> bool:
        """See ``Bus.acquire``; ``ttl_s`` is rounded up to whole seconds."""
        return await self._leases.acquire(key, holder, ttl_s)

    async def release(self, key: str, holder: str) -> None:
        """See ``Bus.release``."""
        await self._leases.release(key, holder)

    async def leases(self, prefix: str) -> tuple[str, ...]:
        """See ``Bus.leases``."""
        return await self._leases.held(prefix)

    async def close(self) -> None:
        """See ``Bus.close``; waits at most 10 s for what is in flight."""
        await self._link.close(CLOSE_BUDGET_S)


async def _answer(question: Msg, handler: Handler) -> None:
    try:
        answer = await handler(question.data)
        if answer is not None:
            await question.respond(answer)
    except (DrayError, OSError, nats.errors.Error) as error:
        structlog.get_logger().warning(
            "a question was not answered", subject=question.subject, error=str(error)
        )
    except Exception:  # noqa: BLE001
        # Nobody's question may end whoever answers, and with it the service.
        structlog.get_logger().exception("a question was not answered", subject=question.subject)
