"""The connection to NATS: a loop that opens the next session when one is lost.

Readers and responders start again on the next session.
"""

import asyncio
import contextlib
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nats.errors
import structlog

from dray.bus.payload import check_payload, payload_problem
from dray.bus.ports import BusUnavailableError
from dray.bus.session import Session, SessionClient
from dray.bus.topology import API_OF_OWNER, NODE_INBOX
from dray.messages.base import token
from dray.runtime.backoff import Backoff

_PING_S: Final = 10
_CONNECT_S: Final = 5
_FLUSH_S: Final = 5
_SELF_EXPLAINING: Final = (nats.errors.Error, OSError, BusUnavailableError)
"""Errors whose text explains the problem."""
_USERINFO: Final = re.compile(r"(?<=//)[^/@,]*@")
_REFUSED: Final = re.compile(r"authori[sz]ation violation|authentication timeout", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BusCredentials:
    """The user that connects: one with a password, or a node with a service account's token."""

    user: str = ""
    password: str = ""
    node: str = ""
    token_file: Path | None = None
    """Read again for each connection, because the kubelet renews it."""
    ca_file: Path | None = None
    """Certificates of the authorities that may have issued a server's certificate, instead of the
    system's. Read again for each connection, because they are rotated."""

    def options(self) -> dict[str, Any]:
        """For nats-py's ``connect``. Raises BusUnavailableError if a file can't be read."""
        return self._tls() | self._identity()

    def _tls(self) -> dict[str, Any]:
        if self.ca_file is None:
            return {}
        try:
            return {"tls": ssl.create_default_context(cafile=self.ca_file)}
        except OSError as error:
            raise BusUnavailableError(
                f"the authorities in {self.ca_file} can't be read: {error}; "
                "DRAY_NATS__CA_FILE names a file of PEM certificates"
            ) from error

    def _identity(self) -> dict[str, Any]:
        if self.token_file is not None:
            inbox = f"{NODE_INBOX}.{token(self.node)}"
            try:
                text = self.token_file.read_text().strip()
            except OSError as error:
                raise BusUnavailableError(
                    f"the token of node {self.node} can't be read: {error}; the kubelet puts it "
                    "there, with the audience that the claim-controllers expect"
                ) from error
            return {"token": text, "inbox_prefix": inbox.encode()}
        return {"user": self.user, "password": self.password} if self.user else {}


_NOBODY: Final = BusCredentials()


class Connection:
    """Keeps a session open for ever, with jittered backoff between attempts."""

    def __init__(
        self,
        servers: str,
        credentials: BusCredentials = _NOBODY,
        *,
        name: str,
        api: str = API_OF_OWNER,
    ) -> None:
        self._credentials = credentials
        self._api = api
        self._servers = _USERINFO.sub("", servers)
        self._failure = "not connected yet"
        """Why there is no connection."""
        self._max_payload_bytes: int | None = None
        self._options: dict[str, Any] = {
            "servers": [server.strip() for server in servers.split(",")],
            "name": name,
            "allow_reconnect": False,
            # Each server is tried twice; the connection loop pauses between attempts.
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "connect_timeout": _CONNECT_S,
            # How long sending waits for a server that does not read. Without it: for ever.
            "flush_timeout": _FLUSH_S,
            "ping_interval": _PING_S,
            "max_outstanding_pings": 2,
        }
        self._session: Session | None = None
        self._up = asyncio.Event()
        self._closed = False
        self._log = structlog.get_logger().bind(bus=self._servers)
        self._connect_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to connect."""
        self._connect_task = asyncio.create_task(self._stay_connected(), name="nats-connection")

    @property
    def connected(self) -> bool:
        """Whether a session is up."""
        return self._session is not None and not self._session.closed.is_set()

    @property
    def problem(self) -> str | None:
        """Why there is no connection, or None."""
        return None if self.connected else f"no connection to NATS: {self._failure}"

    @property
    def max_payload_bytes(self) -> int | None:
        """The longest message that the server accepts; None before the first connection."""
        return self._max_payload_bytes

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def session(self) -> Session:
        """The session. Raises BusUnavailableError while there is none."""
        if self._session is None or self._session.closed.is_set():
            raise BusUnavailableError("there is no connection to NATS now")
        return self._session

    async def next_session(self) -> Session:
        """Wait for a connected session and return it. Raises BusUnavailableError once closed."""
        while True:
            if self._closed:
                raise BusUnavailableError("the bus was closed")
            if self.connected:
                return self.session()
            # Waiting for an event that is set does not yield. If the connection loop has not
            # noticed the loss yet, this loop would never let it run.
            await asyncio.sleep(0)
            await self._up.wait()

    async def close(self, budget_s: float) -> None:
        """Let requests and messages in flight finish within ``budget_s``, then disconnect."""
        self._closed = True
        session = self._session
        draining = None
        try:
            if session is not None and not session.closed.is_set():
                draining = asyncio.create_task(session.drain(), name="nats-drain")
                await asyncio.wait([draining], timeout=budget_s)
        finally:
            if self._connect_task is not None:
                self._connect_task.cancel()
                await asyncio.gather(self._connect_task, return_exceptions=True)
            if session is not None:
                session.lose()
                await session.client.discard()
            if draining is not None:
                # Not earlier: when cancelled, nats-py first waits until its buffer is sent.
                draining.cancel()
                await asyncio.gather(draining, return_exceptions=True)
            self._up.set()

    async def _stay_connected(self) -> None:
        backoff = Backoff(0.05, 5.0)
        while not self._closed:
            try:
                await self._live(backoff)
            except Exception as error:  # noqa: BLE001
                # nats-py raises many types of errors for a bad address or for a server with
                # another protocol. If the loop ended here, it would never connect again.
                known = _text(error) if isinstance(error, _SELF_EXPLAINING) else repr(error)
                self._failure = f"{self._servers}: {self._explained(known)}"
                self._log.warning("can't connect to NATS", error=self._failure)
            await backoff.pause()

    async def _live(self, backoff: Backoff) -> None:
        """One session, from its beginning to its end."""
        session = await self._connect()
        if self._closed:  # A cancellation may be lost if the wait ends at the same time.
            await session.client.discard()
            return
        backoff.reset()
        self._session = session
        self._failure = "it was lost"
        self._max_payload_bytes = session.client.max_payload
        self._up.set()
        if problem := payload_problem(self._max_payload_bytes):
            self._log.warning("the server accepts only short messages", why=problem)
        await session.closed.wait()
        self._up.clear()
        if not self._closed:
            self._log.warning("the connection to NATS was lost")
        await session.client.discard()

    async def _connect(self) -> Session:
        client = SessionClient()
        session = Session(client, api=self._api)
        client.on_end = session.lose

        async def on_error(error: Exception) -> None:
            session.complain(_text(error))

        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(client.discard)
            try:
                options = self._options | self._credentials.options()
                await client.connect(error_cb=on_error, **options)
            except nats.errors.NoServersError:
                why = session.complaint or "the server ended the connection, and did not say why"
                raise BusUnavailableError(why) from None
            check_payload(client.max_payload)
            await session.open()
            undo.pop_all()
        return session

    def _explained(self, error: str) -> str:
        """The error, explained for a node whose token a claim-controller did not confirm."""
        if self._credentials.token_file is None or _REFUSED.search(error) is None:
            return error
        return (
            f"{error}: no claim-controller confirmed the token of "
            f"{self._credentials.token_file} for node {self._credentials.node}; "
            "one has to run, and its log says why it refuses"
        )


def _text(error: Exception) -> str:
    """The text of the error. Some errors have none, such as the timeout of a name resolution."""
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {_CONNECT_S} s, from the server or the lookup of its name"
    return str(error) or repr(error)
