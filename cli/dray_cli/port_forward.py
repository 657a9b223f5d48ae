"""A local port that leads to a pod's port through the API server, like ``kubectl port-forward``.

Every connection has its own WebSocket with the protocol ``v4.channel.k8s.io``, which kubelets and
their container runtimes serve (k8s.io/kubelet/pkg/cri/streaming/portforward). A message begins with
its channel: 0 carries the connection's data, 1 carries errors. The server's first message on each
channel is the port, in two bytes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from dray.api.errors import TemporaryError
from dray.kube.api_transport import environment_proxy
from dray.kube.kubeconfig import ServerAccess

PROTOCOL: Final = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_PORT_BYTES: Final = 2
_READ_BYTES: Final = 2**16
_OPENS_WITHIN_S: Final = 10.0
_FORBIDDEN: Final = 403


class PortForwardError(TemporaryError):
    """The API server, the kubelet or the pod does not accept the connection."""


class PortForward:
    """A context manager; ``port`` of 127.0.0.1 is open within the context. The pod's server must
    send first, as NATS does: the runtime opens a tunnel before it knows whether a server listens.
    """

    def __init__(self, access: ServerAccess, namespace: str, pod: str, pod_port: int) -> None:
        self.port = 0
        """The local port."""
        self._access = access
        self._what = f"port {pod_port} of pod {namespace}/{pod}"
        self._url = (
            f"{access.url}/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={pod_port}"
        )
        self._connections: set[asyncio.Task[None]] = set()
        self._undo = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Raises PortForwardError if no connection can be opened."""
        async with contextlib.AsyncExitStack() as undo:
            self._session = await undo.enter_async_context(
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=0, ssl=self._access.tls or True),
                    cookie_jar=aiohttp.DummyCookieJar(),
                )
            )
            await self._check()
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            undo.callback(server.close)
            self.port = server.sockets[0].getsockname()[1]
            undo.push_async_callback(self._end_connections)
            self._undo = undo.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._undo.aclose()

    async def _check(self) -> None:
        try:
            async with asyncio.timeout(_OPENS_WITHIN_S), self._tunnel() as tunnel:
                await tunnel.greeted()
        except TimeoutError:
            raise PortForwardError(
                f"{self._what} can't be reached: nothing came within {_OPENS_WITHIN_S:g} s"
            ) from None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(PortForwardError, OSError):  # the local end sees it closed
                async with self._tunnel() as tunnel:
                    await tunnel.run(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _end_connections(self) -> None:
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _tunnel(self) -> AsyncIterator["_Tunnel"]:
        options: dict[str, Any] = {"protocols": (PROTOCOL,), "max_msg_size": 0}
        if proxy := self._access.proxy or environment_proxy(self._access.url):
            options["proxy"] = proxy
        if self._access.tls_server_name:
            options["server_hostname"] = self._access.tls_server_name
        try:
            options["headers"] = list(self._access.impersonation)
            if authorization := await self._access.authorization():
                options["headers"].append(("Authorization", authorization))
            async with self._session.ws_connect(self._url, **options) as socket:
                if socket.protocol != PROTOCOL:
                    raise PortForwardError(
                        f"{self._what} can't be reached: the server does not speak {PROTOCOL}"
                    )
                yield _Tunnel(socket, self._what)
        except aiohttp.WSServerHandshakeError as error:
            takes = "; this needs the verbs get and create on pods/portforward"
            raise PortForwardError(
                f"{self._what} can't be reached: the server answered with status {error.status}"
                f"{takes if error.status == _FORBIDDEN else ''}"
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = str(error) or type(error).__name__
            raise PortForwardError(f"{self._what} can't be reached: {why}") from error


class _Tunnel:
    """One connection to the pod's port."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, what: str) -> None:
        self._socket = socket
        self._what = what
        self._seen: set[int] = set()
        """Channels whose first message has come."""

    async def greeted(self) -> None:
        """Wait until the pod's server has sent something. Raises PortForwardError."""
        async for _ in self._messages():
            return
        raise PortForwardError(f"{self._what} can't be reached: the connection was closed")

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry data both ways until one end closes. Raises PortForwardError."""
        sending = asyncio.create_task(self._send(reader))
        try:
            async for data in self._messages():
                writer.write(data)
                await writer.drain()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_READ_BYTES):
            await self._socket.send_bytes(bytes([_DATA]) + data)
        await self._socket.close()

    async def _messages(self) -> AsyncIterator[bytes]:
        """The data of each message that has some. Raises PortForwardError."""
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel not in self._seen:
                self._seen.add(channel)
                data = data[_PORT_BYTES:]
            if channel == _ERROR and data:
                raise PortForwardError(
                    f"{self._what} can't be reached: {data.decode(errors='replace').strip()}"
                )
            if channel == _DATA and data:
                yield data
