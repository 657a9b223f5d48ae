"""A connection that is closed while it connects, that loses its session, that meets no NATS
server."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import nats.errors
import pytest
from structlog.testing import capture_logs

from dray.bus.connection import Connection
from dray.bus.ports import BusUnavailableError
from dray.bus.session import Session, SessionClient

BOUND_S = 60.0


class _Client:
    max_payload = 1024

    def __init__(self) -> None:
        self.is_closed = False

    def new_inbox(self) -> str:
        return "_INBOX.test"

    async def discard(self) -> None:
        self.is_closed = True


class _Impatient(asyncio.Event):
    """Asked too often it fails: who goes round in circles can't be interrupted."""

    asked = 0

    async def wait(self) -> bool:
        self.asked += 1
        assert self.asked < 100
        return await super().wait()


async def test_a_connection_closes_though_the_connection_comes_up_as_it_is_cancelled(monkeypatch):
    client, connects = _Client(), asyncio.Event()

    async def connect() -> Session:
        connects.set()
        with suppress(asyncio.CancelledError):  # As a wait does that ends at the same time.
            await asyncio.Event().wait()
        return Session(client)

    connection = Connection("nats://127.0.0.1:1", name="test")
    monkeypatch.setattr(connection, "_connect", connect)
    connection.start()
    await connects.wait()
    async with asyncio.timeout(BOUND_S):
        await connection.close(1.0)
    assert client.is_closed


async def test_who_asks_for_a_session_as_one_is_lost_waits_for_the_next(monkeypatch):
    """At once: before the connection itself has heard of the loss."""

    async def connect() -> Session:
        return Session(_Client())

    connection = Connection("nats://127.0.0.1:1", name="test")
    connection._up = _Impatient()
    monkeypatch.setattr(connection, "_connect", connect)
    connection.start()
    async with asyncio.timeout(BOUND_S):
        first = await connection.next_session()
        first.lose()
        assert await connection.next_session() is not first
        connection.session().lose()
        await connection.close(1.0)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"HTTP/1.1 400 Bad Request INFO\r\n\r\n",
        b"INFO []\r\n",
        b'INFO {"max_payload": {}}\r\nPONG\r\n',
        b"x" * 200_000 + b"\r\n",
        b"",
    ],
)
async def test_a_connection_tries_on_whatever_answers_in_place_of_nats(nonsense):
    tries = asyncio.Semaphore(0)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.release()
        with suppress(OSError):
            writer.write(nonsense)
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        connection = Connection(
            f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", name="test"
        )
        connection.start()
        async with asyncio.timeout(BOUND_S):
            for _ in range(5):
                await tries.acquire()
            await connection.close(1.0)


async def test_a_server_that_takes_less_than_nats_usually_does_is_refused():
    """Records and what is left of large facts are cut to fit 1 MiB."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(b'INFO {"server_id": "s", "max_payload": 262144}\r\nPONG\r\n')
            await reader.read()
            writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        connection = Connection(
            f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", name="test"
        )
        connection.start()
        async with asyncio.timeout(BOUND_S):
            while "max_payload" not in (connection.problem or ""):
                assert not connection.connected
                await asyncio.sleep(0)
            assert "262144 bytes at most" in connection.problem
            assert "1048576 or more" in connection.problem
            await connection.close(1.0)


async def test_a_server_of_shorter_messages_than_recommended_is_named_in_the_log():
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(b'INFO {"server_id": "s", "max_payload": 1048576}\r\n')
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
            writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        address = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with capture_logs() as lines:
            connection = Connection(address, name="test")
            connection.start()
            async with asyncio.timeout(BOUND_S):
                await connection.next_session()
                await connection.close(1.0)
    assert any("max_payload: 8MB" in line.get("why", "") for line in lines)


@asynccontextmanager
async def asks_a_callout(answer: bytes) -> AsyncIterator[Connection]:
    """A connection to a server that sends a PING before the callout's ``answer``, as nats-server
    does after two seconds."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(b'INFO {"server_id": "s", "max_payload": 8388608}\r\n')
            asked = False
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n" if asked else b"PING\r\n")
                    asked = True
                elif line.startswith(b"PONG"):
                    writer.write(answer)
            writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        address = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        connection = Connection(address, name="test")
        connection.start()
        async with asyncio.timeout(BOUND_S):
            yield connection
            await connection.close(1.0)


async def test_a_connection_that_a_slow_callout_accepts_is_up():
    async with asks_a_callout(b"PONG\r\n") as connection:
        assert await connection.next_session()


async def test_a_connection_that_a_slow_callout_refuses_says_so():
    async with asks_a_callout(b"-ERR 'Authorization Violation'\r\n") as connection:
        while "not connected yet" in connection.problem:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert "Authorization Violation" in connection.problem


async def test_a_connection_to_a_bad_address_goes_on_until_it_is_closed():
    connection = Connection("nats://nats:port", name="test")
    connection.start()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not connection._connect_task.done()
    async with asyncio.timeout(BOUND_S):
        await connection.close(1.0)


async def test_a_request_that_was_never_sent_fails_once(caplog):
    """Lost while it waits its turn: nobody looks for an answer to it any more."""
    session = Session(_Client())
    async with session._sending:
        asking = asyncio.ensure_future(session.request("t.question", b"", timeout_s=BOUND_S))
        await asyncio.sleep(0)
        session.lose()
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        with pytest.raises(BusUnavailableError, match="lost before"):
            await asking
        del asking
        gc.collect()
        await asyncio.sleep(0)
    assert not caplog.records


@pytest.mark.parametrize("silent", [TimeoutError(), OSError()])
async def test_an_error_without_words_is_named_with_the_server(monkeypatch, silent):
    """A name that is not resolved in time ends in a TimeoutError without a text."""

    async def connect(client, *, error_cb, **_):
        await error_cb(silent)
        raise nats.errors.NoServersError

    monkeypatch.setattr(SessionClient, "connect", connect)
    connection = Connection("nats://user:secret@nats.example:4222", name="test")
    with capture_logs() as logs:
        connection.start()
        async with asyncio.timeout(BOUND_S):
            while not logs:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    await connection.close(1.0)

    words = "no answer within 5 s" if isinstance(silent, TimeoutError) else "OSError()"
    assert f"nats://nats.example:4222: {words}" in logs[0]["error"]
    assert words in (connection.problem or "")
    assert "secret" not in str(logs)
