"""The connection to NATS: one session per TCP connection, and a loop that makes the next one.

nats-py's own reconnection is off. It would replay buffered publishes of which the caller was
told that they failed; here a lost connection fails everything in flight at once, readers and
answerers start again on the next session, and the caller decides what to repeat.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from dray.bus.intake import Intake, Take
from dray.bus.ports import BusUnavailableError
from dray.domain.errors import PermanentError
from dray.runtime.backoff import Backoff

NO_RESPONDERS = "503"
_FORBIDDEN = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)
_PING_S = 10
_CONNECT_S = 5


class NoRespondersError(Exception):
    """Nobody listens on a subject; the caller knows what that means."""


class _Client(Client):  # type: ignore[misc]
    """nats-py's, with a shorter way for what is read in bulk."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = self.intake = Intake(self)


class Taking:
    """A subscription whose messages are taken from the connection's bytes."""

    def __init__(self, intake: Intake, subscription: Subscription) -> None:
        self._intake = intake
        self._subscription = subscription

    async def unsubscribe(self) -> None:
        """Take no more."""
        self._intake.leave(self._subscription._id)
        await self._subscription.unsubscribe()


class Session:
    """One connection's life: requests with an inbox of its own, and subscriptions."""

    def __init__(self, client: _Client) -> None:
        self.client = client
        self.closed = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while no request is in flight."""
        self.idle.set()
        self.complaint = ""
        """What the server last refused, such as a missing permission."""
        self._inbox = client.new_inbox()
        self._waiting: dict[str, tuple[str, asyncio.Future[Msg]]] = {}
        """Subject and future of the requests in flight, by the last token of their inbox."""
        self._sending = asyncio.Lock()
        self._asked = 0

    async def open(self) -> None:
        """Listen for replies."""
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
            complaint = f"; the server said: {self.complaint}" if self.complaint else ""
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
            try:
                await self.client.publish(
                    subject, payload, reply=reply, headers=dict(headers) if headers else None
                )
            except (nats.errors.MaxPayloadError, nats.errors.BadSubjectError) as error:
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
        self.client.intake.take(subscription._id, take)
        return Taking(self.client.intake, subscription)

    def lose(self) -> None:
        """The connection is gone: fail what waits."""
        self.closed.set()
        for _, reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(
                    BusUnavailableError("the connection to NATS was lost: the outcome is unknown")
                )

    def complain(self, complaint: str) -> None:
        """The server refused something: fail the requests that it names as not permitted."""
        self.complaint = complaint
        if (match := _FORBIDDEN.search(complaint)) is None:
            return
        for subject, reply in self._waiting.values():
            if subject.lower() == match[1].lower() and not reply.done():
                reply.set_exception(
                    PermanentError(
                        f"this user may not publish {subject}: {complaint}; is DRAY_NATS__USER the "
                        "one of this service?"
                    )
                )

    async def _failed(self) -> None:
        # The client knows that it is closed before it says so: tell all at once, and let
        # others run, or a caller that tries again at once would keep them from it.
        if self.client.is_closed:
            self.lose()
        await asyncio.sleep(0)

    async def _on_reply(self, message: Msg) -> None:
        _, reply = self._waiting.get(message.subject.rpartition(".")[2], ("", None))
        if reply is not None and not reply.done():
            reply.set_result(message)


async def _pass_over(message: Msg) -> None: ...


class Link:
    """Keeps a session up, for ever, with jittered backoff between attempts."""

    def __init__(self, servers: str, *, name: str, user: str = "", password: str = "") -> None:
        self._options: dict[str, Any] = {
            "servers": [server.strip() for server in servers.split(",")],
            "name": name,
            "allow_reconnect": False,
            "connect_timeout": _CONNECT_S,
            "ping_interval": _PING_S,
            "max_outstanding_pings": 2,
        }
        if user:
            self._options |= {"user": user, "password": password}
        self._session: Session | None = None
        self._up = asyncio.Event()
        self._closed = False
        self._log = structlog.get_logger().bind(bus=servers)
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to connect."""
        self._keeper = asyncio.create_task(self._keep(), name="nats-link")

    @property
    def connected(self) -> bool:
        """Whether a session is up."""
        return self._session is not None and not self._session.closed.is_set()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def session(self) -> Session:
        """The session. Raises BusUnavailableError while there is none."""
        if self._session is None or self._session.closed.is_set():
            raise BusUnavailableError("there is no connection to NATS just now")
        return self._session

    async def next_session(self) -> Session:
        """The session, waiting for it. Raises BusUnavailableError once closed."""
        while True:
            if self._closed:
                raise BusUnavailableError("the bus was closed")
            if self.connected:
                return self.session()
            await self._up.wait()

    async def close(self, budget_s: float) -> None:
        """Let what is in flight finish within ``budget_s``, then disconnect."""
        self._closed = True
        session = self._session
        if session is not None and not session.closed.is_set():
            with contextlib.suppress(TimeoutError, nats.errors.Error, OSError):
                async with asyncio.timeout(budget_s):
                    await session.idle.wait()
                    await session.client.drain()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if session is not None:
            session.lose()
            with contextlib.suppress(nats.errors.Error, OSError):
                await session.client.close()
        self._up.set()

    async def _keep(self) -> None:
        backoff = Backoff(0.05, 5.0)
        while not self._closed:
            try:
                session = await self._connect()
            except (nats.errors.Error, OSError, TimeoutError) as error:
                self._log.warning("can't connect to NATS", error=str(error) or repr(error))
                await backoff.pause()
                continue
            if self._closed:  # Being cancelled may be lost where a wait ends at the same time.
                await session.client.close()
                return
            backoff.reset()
            self._session = session
            self._up.set()
            await session.closed.wait()
            self._up.clear()
            if not self._closed:
                self._log.warning("the connection to NATS was lost")
            await backoff.pause()

    async def _connect(self) -> Session:
        client = _Client()
        session = Session(client)

        async def on_closed() -> None:
            session.lose()

        async def on_error(error: Exception) -> None:
            session.complain(str(error))

        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(client.close)
            await client.connect(
                closed_cb=on_closed, disconnected_cb=on_closed, error_cb=on_error, **self._options
            )
            session.client = client
            await session.open()
            undo.pop_all()
        return session
