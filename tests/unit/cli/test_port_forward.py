"""``PortForward`` against a streaming server that speaks as kubelets and container runtimes do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import WSMsgType, web

from dray.kube.kubeconfig import ServerAccess
from dray_cli.port_forward import PROTOCOL, PortForward, PortForwardError

PORT = 4222
OPENED = tuple(bytes([channel]) + PORT.to_bytes(2, "little") for channel in (0, 1))
GREETING = b"INFO"
PATH = "/api/v1/namespaces/ns/pods/nats-0/portforward"
BOUND_S = 30.0
Talk = Callable[[web.WebSocketResponse], Awaitable[None]]


async def echo(socket: web.WebSocketResponse) -> None:
    """Sends back what comes on the data channel, each byte in a message of its own."""
    async for message in socket:
        assert message.type is WSMsgType.BINARY
        assert message.data[0] == 0
        for byte in message.data[1:]:
            await socket.send_bytes(bytes([0, byte]))


async def quiet(socket: web.WebSocketResponse) -> None:
    async for _ in socket:
        pass


@dataclass
class Server:
    """An API server whose only path is a pod's port-forward."""

    talk: Talk = echo
    first: tuple[bytes, ...] = (*OPENED, b"\0" + GREETING)
    status: int = 101
    protocols: tuple[str, ...] = (PROTOCOL,)
    opened: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a connection after the first has ended."""
    asked: list[tuple[str, str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(
            (request.path, request.query_string, request.headers.get("Authorization", ""))
        )
        if self.status != 101:
            return web.json_response({"message": "no"}, status=self.status)
        socket = web.WebSocketResponse(protocols=self.protocols)
        await socket.prepare(request)
        self.opened += 1
        number = self.opened
        try:
            for message in self.first:
                await socket.send_bytes(message)
            await self.talk(socket)
        finally:
            if number > 1:
                self.closed.set()
        return socket

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ServerAccess]:
        application = web.Application()
        application.router.add_get("/{any:.*}", self.answer)
        runner = web.AppRunner(application, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()

        async def authorization() -> str:
            return "Bearer mine"

        try:
            address = runner.addresses[0]
            yield ServerAccess(f"http://127.0.0.1:{address[1]}", authorization)
        finally:
            await runner.cleanup()


@asynccontextmanager
async def forwarded(server: Server) -> AsyncIterator[PortForward]:
    async with (
        asyncio.timeout(BOUND_S),
        server.running() as access,
        PortForward(access, "ns", "nats-0", PORT) as forward,
    ):
        yield forward


async def test_data_goes_both_ways_over_a_connection_of_its_own_each() -> None:
    server = Server()
    async with forwarded(server) as forward:
        for text in (b"hello", bytes(range(256)) * 4):
            reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
            writer.write(text)
            assert await reader.readexactly(len(GREETING + text)) == GREETING + text
            writer.close()

    assert server.opened == 3  # the first one showed that the port answers
    assert set(server.asked) == {(PATH, f"ports={PORT}", "Bearer mine")}


async def test_a_local_end_that_closes_ends_the_connection_to_the_pod() -> None:
    server = Server(talk=quiet)
    async with forwarded(server) as forward:
        _, writer = await asyncio.open_connection("127.0.0.1", forward.port)
        writer.close()
        await server.closed.wait()


async def test_a_pod_that_closes_ends_the_local_connection() -> None:
    async def close(socket: web.WebSocketResponse) -> None:
        await socket.close()

    async with forwarded(Server(talk=close)) as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
        assert await reader.read() == GREETING
        writer.close()


async def test_open_connections_end_with_the_context() -> None:
    async with forwarded(Server(talk=quiet)) as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
        assert await reader.readexactly(len(GREETING)) == GREETING
        port = forward.port
    assert await reader.read() == b""
    writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (
            Server(status=403),
            r"answered with status 403; this needs the verbs get and create on pods/portfo",
        ),
        (Server(status=404), r"status 404$"),
        (Server(protocols=()), f"does not speak {PROTOCOL}"),
        (
            Server(first=(*OPENED, b"\x01connect: connection refused"), talk=quiet),
            "port 4222 of pod ns/nats-0 can't be reached: connect: connection refused",
        ),
        (Server(first=OPENED, talk=lambda socket: socket.close()), "the connection was closed"),
    ],
)
async def test_a_port_that_can_not_be_reached_fails_at_once(server: Server, why: str) -> None:
    with pytest.raises(PortForwardError, match=why):
        async with forwarded(server):
            pass


async def test_an_api_server_that_is_away_fails_at_once() -> None:
    async def nobody() -> str:
        return ""

    with pytest.raises(PortForwardError, match="can't be reached"):
        async with PortForward(ServerAccess("http://127.0.0.1:9", nobody), "ns", "p", PORT):
            pass
