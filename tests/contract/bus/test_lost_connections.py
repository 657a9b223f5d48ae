"""However a connection ends, the bus notices, and connects again."""

import asyncio
import signal
from contextlib import aclosing

import pytest
from structlog.testing import capture_logs
from tests.contract.bus.messages import LOG

from dray.api.errors import PermanentError
from dray.bus import connection
from dray.bus.jetstream import connect
from dray.bus.ports import BusUnavailableError
from dray.messages.base import Outgoing


async def fail(*_: object) -> None:
    raise ConnectionResetError("Connection lost")


def record(number: int) -> Outgoing:
    return Outgoing("t.log.1", str(number).encode(), {})


@pytest.fixture
def is_connected(eventually):
    async def wait(bus, *, connected: bool) -> None:
        async def so() -> bool:
            return bus.connected is connected

        await eventually(so)

    return wait


async def test_a_reader_goes_on_though_the_client_fails_while_it_closes(
    nats_world, is_connected
) -> None:
    """The rest of a send buffer can't be sent over a connection that is gone; nats-py then calls
    nobody back."""
    bus = await nats_world.bus()
    await bus.ensure(LOG)
    await bus.append(record(0), expected_last=0)
    client = bus._connection.session().client

    async with asyncio.timeout(60), aclosing(bus.read("LOG")) as reader:
        await anext(reader)
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        left_behind = client._tasks()
        client._pending, client._pending_data_size = [b"PING\r\n"], 6
        client._transport.drain = fail
        await nats_world.down()
        await is_connected(bus, connected=False)
        await nats_world.up()
        await is_connected(bus, connected=True)
        await bus.append(record(1), expected_last=1)
        assert (await waiting).payload == b"1"
    assert not [task for task in left_behind if not task.done()]


async def test_a_server_that_falls_silent_is_lost_though_it_takes_nothing_more(
    nats_world, is_connected, monkeypatch
) -> None:
    """As a node without power: nothing comes, not even an end, and nothing can be sent."""
    monkeypatch.setattr(connection, "_PING_S", 0.1)
    monkeypatch.setattr(connection, "_FLUSH_S", 0.5)
    bus = await nats_world.bus()
    await bus.ensure(LOG)
    nats_world.signal(signal.SIGSTOP)
    flooding = asyncio.create_task(flood(bus))
    await is_connected(bus, connected=False)
    with pytest.raises(BusUnavailableError):
        await flooding
    nats_world.signal(signal.SIGCONT)
    await is_connected(bus, connected=True)
    assert await bus.append(record(0), expected_last=0) == 1


async def flood(bus) -> None:
    while True:
        await bus.notify("t.note", b"x" * 500_000)
        await asyncio.sleep(0)


@pytest.fixture
async def stuck(nats_world, eventually, monkeypatch):
    """A bus whose server takes nothing more, and a task that waits until it does."""
    monkeypatch.setattr(
        connection, "_PING_S", 600
    )  # However slow this machine is, it is not missed.
    bus = await nats_world.bus()
    nats_world.signal(signal.SIGSTOP)
    flooding = asyncio.create_task(flood(bus))
    session = bus._connection.session()

    async def is_full() -> bool:
        return session._sending.locked() and session.client.pending_data_size > 2_000_000

    await eventually(is_full)
    yield bus, flooding
    nats_world.signal(signal.SIGCONT)


async def test_waiting_to_send_can_be_cancelled(stuck) -> None:
    """nats-py keeps the cancellation for itself, and the sender would send on."""
    bus, flooding = stuck
    flooding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flooding
    assert bus.connected


async def test_a_bus_closes_though_its_server_takes_nothing_more(stuck) -> None:
    bus, flooding = stuck
    async with asyncio.timeout(60):
        await bus._connection.close(0.1)
        with pytest.raises(BusUnavailableError):
            await flooding
    assert not bus.connected


async def test_a_reader_can_be_left_while_the_bus_closes(nats_world) -> None:
    """nats-py unsubscribes nothing then."""
    bus = await nats_world.bus()
    await bus.ensure(LOG)
    await bus.append(record(0), expected_last=0)
    client = bus._connection.session().client
    async with aclosing(bus.read("LOG")) as reader:
        await anext(reader)
        client._status, before = client.DRAINING_SUBS, client._status
    client._status = before


async def test_messages_in_flight_when_the_server_ended_have_an_unknown_outcome(nats_world) -> None:
    bus = await nats_world.bus()
    await bus.ensure(LOG)
    made: list[int] = []

    def batches():
        for number in range(10_000):
            made.append(number)
            if number == 20:
                nats_world.signal(signal.SIGKILL)
            yield [record(number), record(number)]

    async with asyncio.timeout(60):
        outcomes = await bus.publish_all(batches())
    assert len(made) < 10_000
    assert len(outcomes) == 2 * len(made)
    lost = [isinstance(one, BusUnavailableError) for one in outcomes]
    assert any(lost)
    assert lost == sorted(lost), "none is stored after one that may not be"
    await nats_world.ended()


async def test_other_tasks_run_while_a_batch_of_large_messages_is_sent(nats_world) -> None:
    bus = await nats_world.bus()
    await bus.ensure(LOG)
    client = bus._connection.session().client
    turns, turns_at_write = 0, []
    send_all = client.send_all

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def noted(publications: list[bytes]) -> None:
        turns_at_write.append((turns, sum(map(len, publications))))
        await send_all(publications)

    client.send_all = noted
    task = asyncio.create_task(other())
    large = [Outgoing("t.log.1", b"x" * 700_000) for _ in range(8)]
    outcomes = await bus.publish_all([[*large, record(0)]])
    task.cancel()
    assert all(isinstance(one, int) for one in outcomes)
    assert outcomes == sorted(outcomes)
    assert max(size_bytes for _, size_bytes in turns_at_write) < 3 * 2**20
    assert len({turn for turn, _ in turns_at_write}) == len(turns_at_write)


async def test_without_a_connection_the_first_batch_fails_and_no_other_is_made(
    nats_world, is_connected
) -> None:
    bus = await nats_world.bus()
    await nats_world.down()
    await is_connected(bus, connected=False)
    batches = iter([[record(0), record(1)], [record(2)]])
    outcomes = await bus.publish_all(batches)
    assert [type(one) for one in outcomes] == [BusUnavailableError] * 2
    assert list(batches) == [[record(2)]]
    assert await bus.publish_all(()) == []


@pytest.mark.parametrize(
    ("size", "headers"), [(2**20 - 100, {"a": "x" * 100}), (10, {"no header": "x"})]
)
async def test_messages_that_no_server_accepts_are_refused_permanently(
    nats_world, size, headers
) -> None:
    """The server would end the connection, for all who use it; tried again, again."""
    bus = await nats_world.bus()
    await bus.ensure(LOG)
    session = bus._connection.session()
    with pytest.raises(PermanentError, match="can't be published"):
        await bus.publish(Outgoing("t.log.1", b"x" * size, headers))
    assert await bus.append(record(0), expected_last=0) == 1
    assert bus._connection.session() is session


async def test_a_client_that_stops_reading_is_replaced(nats_world, is_connected) -> None:
    """nats-py ends its loop over what it can't make sense of, and leaves it at that."""
    bus = await nats_world.bus()
    await bus.ensure(LOG)
    session = bus._connection.session()
    session.client._ps.parse = fail
    with pytest.raises(BusUnavailableError, match="lost"):
        await bus.state("LOG")
    await is_connected(bus, connected=True)
    assert bus._connection.session() is not session
    assert session.client.is_closed
    assert await bus.append(record(0), expected_last=0) == 1


async def test_the_error_says_at_once_why_no_server_can_be_reached(nats_world, eventually) -> None:
    await nats_world.down()
    with capture_logs() as logs:
        bus = await connect(nats_world.url, name="early", wait_s=0.0)

        async def is_explained() -> bool:
            return "Connect call failed" in (bus.problem or "")

        try:
            await eventually(is_explained)
        finally:
            await bus.close()
    attempts = [line for line in logs if line["event"] == "can't connect to NATS"]
    assert "Connect call failed" in attempts[0]["error"]
