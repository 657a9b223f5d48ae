"""One connection to NATS, from its beginning to its end: requests, and subscriptions.

nats-py's own reconnection is off: it would replay buffered messages that have already failed for
the caller. Here, everything in flight fails at once when the connection is lost, and the caller
decides what to repeat.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import nats.errors
import structlog
from nats.aio.client import PING_PROTO, PONG_PROTO, Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from dray.api.errors import DrayError, PermanentError
from dray.bus.bulk_parser import BulkParser, Headers, Take
from dray.bus.ports import BusUnavailableError, MessageTooLargeError
from dray.messages.base import Outgoing

T = TypeVar("T")
_NO_RESPONDERS: Final = "503"
_WITHOUT_BREAKS: Final = str.maketrans("\r\n", "  ")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FORBIDDEN: Final = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)
_UNSENDABLE: Final = (nats.errors.BadSubjectError, nats.errors.BadHeaderError)
_NOT_IN_SUBJECTS: Final = re.compile(r"[ \t\r\n]")
_SENT_AT_ONCE_BYTES: Final = 2**20
"""One write of 64 facts of 1 MB would take 80 ms, during which nothing else could run."""
_VIOLATION: Final = "permissions violation"
_DISCARD_S: Final = 1


class NoRespondersError(Exception):
    """The subject has no responder. The caller decides what that means."""


class PingTransport(TcpTransport):  # type: ignore[misc]
    """Skips the server's own PING, which nats-py would read as the answer to its first PING.
    nats-server sends it before the answer if its authentication callout takes two seconds."""

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
        """Require TLS for tls:// URLs. Otherwise nats-py would send the password in clear text to a
        server that does not ask for TLS."""
        server = self._current_server
        if server.uri.scheme == "tls" and initial_connection and not info.get("tls_required"):
            raise nats.errors.Error(
                f"nats: {server.uri.netloc.rpartition('@')[2]} offers no TLS, and its URL asks for "
                "it: nothing was sent to it"
            )
        await super()._process_info(info, initial_connection)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """Keep the cancellation of a task that waits here for the server to read. nats-py swallows
        it: loops would continue after their end, and requests would wait beyond their timeout."""
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        flushed = await super()._flush_pending(force_flush)
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        return flushed

    async def send_all(self, publications: Sequence[bytes]) -> None:
        """Send publications, encoded for the protocol, at once. nats-py's ``publish`` takes longer
        for each than encoding it.

        Raises:
            nats.errors.Error: the connection is closed, or is closing.
        """
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        if self.is_draining_pubs:
            raise nats.errors.ConnectionDrainingError
        if not self.is_connected:
            raise nats.errors.OutboundBufferLimitError
        self.stats["out_msgs"] += len(publications)
        self.stats["out_bytes"] += sum(map(len, publications))
        await self._send_command(b"".join(publications))
        if self._flush_queue.empty():
            await self._flush_pending()

    async def _close(self, *args: Any, **more: Any) -> None:
        """Ignore expected errors: nats-py closes in background tasks, for example after a refused
        connection, and the server may be gone by then."""
        with contextlib.suppress(OSError):
            await super()._close(*args, **more)

    async def discard(self) -> None:
        """Close, even if the client is closed already or its server does not read.

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
        """nats-py's tasks. nats-py leaves them running if closing fails."""
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
    """One connection: requests, with an inbox of its own, and subscriptions."""

    def __init__(self, client: SessionClient, *, api: str = "$JS.API.") -> None:
        self.client = client
        self.api = api
        """Prefix of JetStream's API in this connection's account."""
        self.closed = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while no request is in flight."""
        self.idle.set()
        self.complaint = ""
        """The server's last refusal, for example for a missing permission."""
        self._inbox = ""
        """Set once connected: the prefix is an option of the connection."""
        self._waiting: dict[str, _Request] = {}
        """The requests in flight, by the last token of their inbox."""
        self._sending = asyncio.Lock()
        self._asked = 0

    async def open(self) -> None:
        """Listen for replies."""
        self._inbox = self.client.new_inbox()
        await self.take(f"{self._inbox}.*", self._take_reply)
        await self.client.flush()

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Publish and wait for one reply. Overlapping calls are sent in call order.

        Raises:
            BusUnavailableError: no reply in time, or the connection was lost.
            NoRespondersError: nobody listens.
        """
        asked = self._expect(subject)
        try:
            async with asyncio.timeout(timeout_s):
                await self.send(subject, payload, headers=headers, reply=asked.reply_to)
                return await asked.reply
        except TimeoutError:
            raise self._no_answer(subject, timeout_s) from None
        finally:
            self._forget(asked)

    async def request_all(
        self,
        batches: Iterable[Sequence[Outgoing]],
        read: Callable[[bytes, str], T],
        *,
        most: int,
        timeout_s: float,
    ) -> list[T | DrayError | NoRespondersError]:
        """Publish messages in order and wait for the reply to each. The next batch is taken from
        ``batches`` once at most ``most`` replies are due. After a failure no more are taken.

        ``read`` makes the outcome from a reply and its request's subject. Returns, for each message
        in the batches that were taken, its outcome or the error of ``request`` or ``read``.
        """
        asked: list[_Request] = []
        outcomes: list[T | DrayError | NoRespondersError] = []
        has_failed = False
        try:
            for batch in batches:
                due_now = [self._expect(message.subject) for message in batch]
                asked += due_now
                await self._send_requests(zip(due_now, batch, strict=True))
                await asyncio.sleep(0)  # Let replies arrive.
                while (due := len(asked) - len(outcomes)) > 0:
                    if due <= most and not asked[-due].reply.done():
                        break
                    outcomes.append(await self._outcome(asked[-due], read, timeout_s))
                    has_failed = has_failed or isinstance(outcomes[-1], Exception)
                if has_failed:
                    break
            for one in asked[len(outcomes) :]:
                outcomes.append(await self._outcome(one, read, timeout_s))
        finally:
            for one in asked:
                self._forget(one)
        return outcomes

    async def _send_requests(self, requests: "Iterable[tuple[_Request, Outgoing]]") -> None:
        """Publish. An error becomes the outcome of its request. Other tasks run between parts of
        about ``_SENT_AT_ONCE_BYTES``."""
        part: list[tuple[_Request, bytes]] = []
        size_bytes = 0
        for asked, message in requests:
            subject, payload, headers = message.subject, message.payload, message.headers
            try:
                publication = self._publication(subject, payload, asked.reply_to, headers)
            except PermanentError as error:
                _fail(asked.reply, error)
                continue
            part.append((asked, publication))
            size_bytes += len(publication)
            if size_bytes >= _SENT_AT_ONCE_BYTES:
                await self._send_part(part)
                await asyncio.sleep(0)
                part, size_bytes = [], 0
        if part:
            await self._send_part(part)

    async def _send_part(self, part: "Sequence[tuple[_Request, bytes]]") -> None:
        try:
            await self._send([one for _, one in part], f"{len(part)} messages")
        except BusUnavailableError as error:
            for asked, _ in part:
                _fail(asked.reply, error)

    async def _outcome(
        self, asked: "_Request", read: Callable[[bytes, str], T], timeout_s: float
    ) -> T | DrayError | NoRespondersError:
        try:
            if not asked.reply.done():
                async with asyncio.timeout(timeout_s):
                    await asked.reply
            return read(asked.reply.result(), asked.subject)
        except TimeoutError:
            return self._no_answer(asked.subject, timeout_s)
        except (DrayError, NoRespondersError) as error:
            return error

    def _no_answer(self, subject: str, timeout_s: float) -> BusUnavailableError:
        complaint = f"; the server answered: {self.complaint}" if self.complaint else ""
        return BusUnavailableError(
            f"no answer from NATS for {subject} within {timeout_s} s{complaint}"
        )

    def _expect(self, subject: str) -> "_Request":
        """A new request that waits for its reply."""
        self._asked += 1
        token = str(self._asked)
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        asked = self._waiting[token] = _Request(subject, token, f"{self._inbox}.{token}", reply)
        self.idle.clear()
        return asked

    def _forget(self, asked: "_Request") -> None:
        self._waiting.pop(asked.token, None)
        if not self._waiting:
            self.idle.set()

    async def send(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Publish. Raises BusUnavailableError, and PermanentError if NATS can't carry it."""
        await self._send([self._publication(subject, payload, reply, headers or {})], subject)

    def _publication(
        self, subject: str, payload: bytes, reply: str, headers: Mapping[str, str]
    ) -> bytes:
        """A message encoded for sending. Raises PermanentError if NATS can't carry it. nats-py only
        checks the payload's size, but a server ends the connection if the whole is too large."""
        try:
            _check_subject(subject)
            block = _header_block(headers) if headers else b""
        except _UNSENDABLE as error:
            raise PermanentError(
                f"{subject} with {len(payload)} bytes can't be published: {error}"
            ) from error
        size_bytes = len(block) + len(payload)
        if size_bytes > self.client.max_payload:
            raise MessageTooLargeError(subject, size_bytes, self.client.max_payload)
        if block:
            line = f"HPUB {subject} {reply} {len(block)} {size_bytes}\r\n"
        else:
            line = f"PUB {subject} {reply} {size_bytes}\r\n"
        return b"%b%b%b\r\n" % (line.encode(), block, payload)

    async def _send(self, publications: Sequence[bytes], what: str) -> None:
        """Send publications, in the order of calls. Raises BusUnavailableError."""
        async with self._sending:
            if self.closed.is_set():
                raise BusUnavailableError(f"the connection to NATS was lost before {what}")
            try:
                await self.client.send_all(publications)
            except (nats.errors.Error, OSError) as error:
                await self._failed()
                raise BusUnavailableError(f"publishing {what} failed: {error}") from error

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
        """Subscribe without nats-py's objects and queues. ``take`` is called for each message that
        arrives. Nothing may be sent to the subject before this returns. Raises
        BusUnavailableError."""
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
        for asked in self._waiting.values():
            lost = "the connection to NATS was lost: the outcome is unknown"
            _fail(asked.reply, BusUnavailableError(lost))

    def complain(self, complaint: str) -> None:
        """Handle a refusal of the server: fail the requests that it names as not permitted.

        Other refusals (for a subscription, for a message without reply) are logged.
        """
        self.complaint = complaint
        match = _FORBIDDEN.search(complaint)
        concerned = [
            asked
            for asked in self._waiting.values()
            if match is not None and asked.subject.lower() == match[1].lower()
        ]
        for asked in concerned:
            refused = PermanentError(
                f"this user may not publish {asked.subject}: {complaint}; is DRAY_NATS__USER the "
                "one of this service?"
            )
            _fail(asked.reply, refused)
        if not concerned and _VIOLATION in complaint.lower():
            structlog.get_logger().error("NATS refused a message or subscription", error=complaint)

    async def _failed(self) -> None:
        # The client is closed before its callback runs. Report that now, and yield; otherwise a
        # caller that retries in a loop would keep the callback from running.
        if self.client.is_closed:
            self.lose()
        await asyncio.sleep(0)

    def _take_reply(self, subject: bytes, _: bytes, headers: bytes, payload: bytes) -> None:
        asked = self._waiting.get(subject.rpartition(b".")[2].decode())
        if asked is None or asked.reply.done():
            return
        if headers and Headers(headers).status[0] == _NO_RESPONDERS:
            asked.reply.set_exception(NoRespondersError(asked.subject))
            asked.reply.exception()  # Mark the exception as retrieved.
        else:
            asked.reply.set_result(payload)


class _Request(NamedTuple):
    """A request in flight."""

    subject: str
    token: str
    """The last token of its reply subject."""
    reply_to: str
    reply: "asyncio.Future[bytes]"


def _check_subject(subject: str) -> None:
    """Raises nats.errors.BadSubjectError if the subject would be several words of the protocol."""
    if not subject or _NOT_IN_SUBJECTS.search(subject):
        raise nats.errors.BadSubjectError


def _header_block(headers: Mapping[str, str]) -> bytes:
    """Headers as they are sent; line breaks in values become spaces, as nats-py makes them.

    Raises:
        nats.errors.BadHeaderError: a name is not allowed.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        plain = {name: value.translate(_WITHOUT_BREAKS) for name, value in headers.items()}
        lines = "".join([f"{name}: {value}\r\n" for name, value in plain.items()])
    if (name := _bad_header_name(tuple(headers))) is not None:
        raise nats.errors.BadHeaderError(name)
    return f"NATS/1.0\r\n{lines}\r\n".encode()


@lru_cache(1024)
def _bad_header_name(names: tuple[str, ...]) -> str | None:
    return next((name for name in names if _HEADER_NAME.fullmatch(name) is None), None)


async def unsubscribe(subscription: Subscription) -> None:
    """Unsubscribe. Errors are ignored, because a lost connection also ends the subscription."""
    with contextlib.suppress(nats.errors.Error, OSError):
        await subscription.unsubscribe()


def _fail(reply: "asyncio.Future[bytes]", error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)
        reply.exception()  # Mark as retrieved: a sender that has not sent yet never awaits it.


async def _pass_over(message: Msg) -> None: ...
