"""The connection to NATS: a loop that makes the next session when one is lost.

Readers and answerers start again on the next session.
"""

import asyncio
import contextlib
from typing import Any, Final

import nats.errors
import structlog

from dray.bus.ports import BusUnavailableError
from dray.bus.session import Session, SessionClient
from dray.runtime.backoff import Backoff

_PING_S: Final = 10
_CONNECT_S: Final = 5
_FLUSH_S: Final = 5
_TOLD: Final = (nats.errors.Error, OSError, BusUnavailableError)
"""What says by itself what is wrong."""


class Link:
    """Keeps a session up, for ever, with jittered backoff between attempts."""

    def __init__(self, servers: str, *, name: str, user: str = "", password: str = "") -> None:
        self._max_payload_bytes: int | None = None
        self._options: dict[str, Any] = {
            "servers": [server.strip() for server in servers.split(",")],
            "name": name,
            "allow_reconnect": False,
            # Each server is tried twice; the pause before the next attempt is the keeper's.
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "connect_timeout": _CONNECT_S,
            # How long sending waits for a server that takes nothing; for ever if nothing is said.
            "flush_timeout": _FLUSH_S,
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

    @property
    def max_payload_bytes(self) -> int | None:
        """The longest message that the server takes; None before the first connection."""
        return self._max_payload_bytes

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
            # A set event is not waited for: where the keeper has not heard of the loss yet, this
            # would go round for ever, and keep it from hearing.
            await asyncio.sleep(0)
            await self._up.wait()

    async def close(self, budget_s: float) -> None:
        """Let what is in flight finish within ``budget_s``, then disconnect."""
        self._closed = True
        session = self._session
        draining = None
        try:
            if session is not None and not session.closed.is_set():
                draining = asyncio.create_task(session.drain(), name="nats-drain")
                await asyncio.wait([draining], timeout=budget_s)
        finally:
            if self._keeper is not None:
                self._keeper.cancel()
                await asyncio.gather(self._keeper, return_exceptions=True)
            if session is not None:
                session.lose()
                await session.client.discard()
            if draining is not None:
                # Only now: nats-py answers a cancellation by waiting for what it has to send.
                draining.cancel()
                await asyncio.gather(draining, return_exceptions=True)
            self._up.set()

    async def _keep(self) -> None:
        backoff = Backoff(0.05, 5.0)
        while not self._closed:
            try:
                await self._live(backoff)
            except Exception as error:  # noqa: BLE001
                # Whatever nats-py makes of a server that speaks nonsense, or of a bad address:
                # where the keeper ended over it, there would be no connection ever again.
                said = str(error) if isinstance(error, _TOLD) else ""
                self._log.warning("can't connect to NATS", error=said or repr(error))
            await backoff.pause()

    async def _live(self, backoff: Backoff) -> None:
        """One session, from its beginning to its end."""
        session = await self._connect()
        if self._closed:  # Being cancelled may be lost where a wait ends at the same time.
            await session.client.discard()
            return
        backoff.reset()
        self._session = session
        self._max_payload_bytes = session.client.max_payload
        self._up.set()
        await session.closed.wait()
        self._up.clear()
        if not self._closed:
            self._log.warning("the connection to NATS was lost")
        await session.client.discard()

    async def _connect(self) -> Session:
        client = SessionClient()
        session = Session(client)
        client.on_end = session.lose

        async def on_error(error: Exception) -> None:
            session.complain(str(error))

        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(client.discard)
            try:
                await client.connect(error_cb=on_error, **self._options)
            except nats.errors.NoServersError:
                raise BusUnavailableError(session.complaint) from None
            await session.open()
            undo.pop_all()
        return session
