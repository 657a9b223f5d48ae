"""One connection to NATS, from its beginning to its end: requests, and subscriptions.

nats-py's own reconnection is off. It would replay buffered publishes that the caller already saw
fail. Here a lost connection fails everything in flight at once, and the caller decides what to
repeat.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import nats.errors
import structlog
from nats.aio.client import PING_PROTO, PONG_PROTO, Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from dray.api.errors import PermanentError
from dray.bus.bulk_parser import BulkParser, Take
from dray.bus.ports import BusUnavailableError, MessageTooLargeError
from dray.messages.base import sent_bytes

NO_RESPONDERS: Final = "503"
_FORBIDDEN: Final = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)
_UNSENDABLE: Final = (
    nats.errors.MaxPayloadError,
    nats.errors.BadSubjectError,
    nats.errors.BadHeaderError,
)
_VIOLATION: Final = "permissions violation"
_DISCARD_S: Final = 1


class NoRespondersError(Exception):
    """The subject has no responder; the caller knows what that means."""


class PingTransport(TcpTransport):  # type: ignore[misc]
    """nats-py reads one line as the answer to its first PING. nats-server sends a PING of its own
    before that answer if its authentication callout takes two seconds."""

    def __init__(self, connected: TcpTransport) -> None:
        super().__init__()
        self.__dict__.update(connected.__dict__)

    async def readline(self) -> bytes:
        while (line := bytes(await super().readline())) == PING_PROTO:
            self.write(PONG_PROTO)
        return line


class SessionClient(Client):  # type: ignore[misc]
    """nats-py's client, with a bulk parser and a callback for the end of reading."""

    _transport: TcpTransport

    def __init__(self) -> None:
        super().__init__()
        self._ps = self.parser = BulkParser(self)
        self.on_end: Callable[[], None] | None = None
        """Called once reading has ended. nats-py does not call its own callbacks if closing fails,
        and calls them late while it flushes."""

    async def _connect_to_server(self, server: Any) -> None:
        await super()._connect_to_server(server)
        self._transport = PingTransport(self._transport)

    async def _read_loop(self) -> None:
        try:
            await super()._read_loop()
        finally:
            if self.on_end is not None:
                self.on_end()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """nats-py sends the password in clear text to a server that asks for no TLS, though its URL
        begins with tls://."""
        server = self._current_server
        if server.uri.scheme == "tls" and initial_connection and not info.get("tls_required"):
            raise nats.errors.Error(
                f"nats: {server.uri.netloc.rpartition('@')[2]} offers no TLS, and its URL asks for "
                "it: nothing was sent to it"
            )
        await super()._process_info(info, initial_connection)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """nats-py swallows the cancellation of a task that waits here for the server to take what
        was sent: loops would go on after their end, and requests would wait beyond their
        timeout."""
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        flushed = await super()._flush_pending(force_flush)
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        return flushed

    async def _close(self, *args: Any, **more: Any) -> None:
        """nats-py closes in background tasks, for instance after a refused connection. An error
        because the server is gone is expected there."""
        with contextlib.suppress(OSError):
            await super()._close(*args, **more)

    async def discard(self) -> None:
        """Close, even if it is closed already or its server does not read.

        All tasks end. Errors are ignored, because the connection is abandoned.
        """
        closing = asyncio.ensure_future(self.close())
        await asyncio.wait([closing], timeout=_DISCARD_S)
        if isinstance(self._transport, TcpTransport) and self._transport._io_writer is not None:
            self._transport._io_writer.transport.abort()
        tasks = [closing, *self._tasks()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_DISCARD_S)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # Mark the exception as retrieved.

    def _tasks(self) -> list["asyncio.Task[None]"]:
        """nats-py's tasks, which it leaves running if closing fails."""
        own = [self._reading_task, self._ping_interval_task, self._flusher_task]
        listening = [subscription._wait_for_msgs_task for subscription in self._subs.values()]
        return [task for task in (*own, *listening) if task is not None]


class Taking:
    """A subscription whose messages are taken from the connection's bytes."""

    def __init__(self, parser: BulkParser, subscription: Subscription) -> None:
        self._parser = parser
        self._subscription = subscription

    async def unsubscribe(self) -> None:
        """Take no more."""
        self._parser.leave(self._subscription._id)
        await unsubscribe(self._subscription)


class Session:
    """One connection's life: requests with an inbox of its own, and subscriptions."""

    def __init__(self, client: SessionClient, *, api: str = "$JS.API.") -> None:
        self.client = client
        self.api = api
        """Prefix of JetStream's API in this connection's account."""
        self.closed = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while no request is in flight."""
        self.idle.set()
        self.complaint = ""
        """What the server last refused, such as a missing permission."""
        self._inbox = ""
        """Known once connected: the prefix is an option of the connection."""
        self._waiting: dict[str, tuple[str, asyncio.Future[Msg]]] = {}
        """Subject and future of the requests in flight, by the last token of their inbox."""
        self._sending = asyncio.Lock()
        self._asked = 0

    async def open(self) -> None:
        """Listen for replies."""
        self._inbox = self.client.new_inbox()
        await self.client.subscribe(f"{self._inbox}.*", cb=self._on_reply)
        await self.client.flush()

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> Msg:
        """Publish and wait for one reply; overlapping calls are sent in call order.

        Raises:
            BusUnavailableError: no reply in time, or the connection was lost.
            NoRespondersError: nobody listens.
        """
        self._asked += 1
        token = str(self._asked)
        reply: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[token] = subject, reply
        self.idle.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self.send(subject, payload, headers=headers, reply=f"{self._inbox}.{token}")
                message = await reply
        except TimeoutError:
            complaint = f"; the server answered: {self.complaint}" if self.complaint else ""
            raise BusUnavailableError(
                f"no answer from NATS for {subject} within {timeout_s} s{complaint}"
            ) from None
        finally:
            del self._waiting[token]
            if not self._waiting:
                self.idle.set()
        if (message.headers or {}).get("Status") == NO_RESPONDERS:
            raise NoRespondersError(subject)
        return message

    async def send(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Publish. Raises BusUnavailableError, or PermanentError for what NATS can't carry."""
        async with self._sending:
            if self.closed.is_set():
                raise BusUnavailableError(f"the connection to NATS was lost before {subject}")
            self._check_size(subject, payload, headers or {})
            try:
                await self.client.publish(
                    subject, payload, reply=reply, headers=dict(headers) if headers else None
                )
            except _UNSENDABLE as error:
                raise PermanentError(
                    f"{subject} with {len(payload)} bytes can't be published: {error}"
                ) from error
            except (nats.errors.Error, OSError) as error:
                await self._failed()
                raise BusUnavailableError(f"publishing {subject} failed: {error}") from error

    async def subscribe(
        self, subject: str, on_message: Callable[[Msg], Awaitable[None]], *, queue: str = ""
    ) -> Subscription:
        """Subscribe until the session ends. Raises BusUnavailableError."""
        try:
            return await self.client.subscribe(subject, queue=queue, cb=on_message)
        except (nats.errors.Error, OSError) as error:
            await self._failed()
            raise BusUnavailableError(f"subscribing to {subject} failed: {error}") from error

    async def take(self, subject: str, take: Take) -> Taking:
        """Subscribe, past nats-py's objects and queues; ``take`` is called as messages come, and
        nothing may be sent to the subject before this returns. Raises BusUnavailableError."""
        subscription = await self.subscribe(subject, _pass_over)
        self.client.parser.take(subscription._id, take)
        return Taking(self.client.parser, subscription)

    async def drain(self) -> None:
        """Wait for the requests in flight, and for received messages to be processed."""
        await self.idle.wait()
        await self.client.drain()

    def lose(self) -> None:
        """The connection is gone: fail the waiting requests."""
        self.closed.set()
        for _, reply in self._waiting.values():
            lost = "the connection to NATS was lost: the outcome is unknown"
            _fail(reply, BusUnavailableError(lost))

    def complain(self, complaint: str) -> None:
        """The server refused something: fail the requests that it names as not permitted.

        Other refusals (of a subscription, of a message without reply) are logged.
        """
        self.complaint = complaint
        match = _FORBIDDEN.search(complaint)
        concerned = [
            (subject, reply)
            for subject, reply in self._waiting.values()
            if match is not None and subject.lower() == match[1].lower()
        ]
        for subject, reply in concerned:
            refused = PermanentError(
                f"this user may not publish {subject}: {complaint}; is DRAY_NATS__USER the "
                "one of this service?"
            )
            _fail(reply, refused)
        if not concerned and _VIOLATION in complaint.lower():
            structlog.get_logger().error("NATS refused a message or subscription", error=complaint)

    def _check_size(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> None:
        """nats-py counts the payload alone; a server ends the connection over the whole."""
        if (size_bytes := sent_bytes(payload, headers)) > self.client.max_payload:
            raise MessageTooLargeError(subject, size_bytes, self.client.max_payload)

    async def _failed(self) -> None:
        # The client is closed before its callback runs. Report that now, and yield, or a caller
        # that retries in a loop would starve the callback.
        if self.client.is_closed:
            self.lose()
        await asyncio.sleep(0)

    async def _on_reply(self, message: Msg) -> None:
        _, reply = self._waiting.get(message.subject.rpartition(".")[2], ("", None))
        if reply is not None and not reply.done():
            reply.set_result(message)


async def unsubscribe(subscription: Subscription) -> None:
    """Unsubscribe; errors are ignored, because a lost connection ends the subscription, too."""
    with contextlib.suppress(nats.errors.Error, OSError):
        await subscription.unsubscribe()


def _fail(reply: "asyncio.Future[Msg]", error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)
        reply.exception()  # Mark as retrieved: a sender that has not sent yet never awaits it.


async def _pass_over(message: Msg) -> None: ...
