"""Whatever anybody writes to the bus, everybody else goes on."""

import asyncio
from contextlib import aclosing

import pytest
from tests.contract.bus.messages import LATEST, message, snapshot

from dray.bus.ports import BusUnavailableError, Request, StreamSpec

BOUND_S = 60.0
COMMANDS = StreamSpec("COMMANDS", ("dray.cmd.>",))
DEAD = StreamSpec("DEAD", ("dray.dead.>",))
MOST_BYTES = 2**20


async def say(bus, line: bytes) -> None:
    """What nats-py would not send."""
    client = bus._connection.session().client
    await client._send_command(line)
    await client._flush_pending()


async def test_a_subject_that_is_not_text_ends_no_reader(nats_world) -> None:
    """Who may write below a prefix may write such a one, and the stream keeps it."""
    bus = await nats_world.bus()
    await bus.ensure(LATEST)
    await say(bus, b"PUB t.latest.\xff\xfe 1\r\nx\r\n")
    await bus.publish(message("t.latest.a"))
    first, second = await snapshot(bus.read("LATEST"))
    assert (first.payload, first.sequence) == (b"x", 1)
    assert (second.subject, second.sequence) == ("t.latest.a", 2)


@pytest.fixture
async def answering(nats_world, eventually):
    """A bus that answers questions with themselves, and one that asks."""
    bus, other = await nats_world.bus(), await nats_world.bus()

    async def answer(request: Request) -> bytes:
        return request.payload

    task = asyncio.create_task(bus.serve("t.q", answer, queue="q"))

    async def is_answered() -> bool:
        try:
            return await other.request("t.q", b"?", timeout_s=BOUND_S) == b"?"
        except BusUnavailableError:
            return False

    await eventually(is_answered)
    yield bus, other
    task.cancel()


@pytest.mark.parametrize(
    "question",
    [b"PUB t.q \xff\xfe 1\r\nx\r\n", b"HPUB t.q 15 16\r\nNATS/1.0 \xff\xff\r\n\r\nx\r\n"],
    ids=["where to answer", "status"],
)
async def test_a_request_that_is_not_text_closes_no_connection(answering, question) -> None:
    bus, other = answering
    session = bus._connection.session()
    await say(other, question)
    assert await other.request("t.q", b"next", timeout_s=BOUND_S) == b"next"
    assert bus._connection.session() is session


async def test_messages_too_large_for_a_dead_letter_are_dropped(nats_world) -> None:
    """It would be delivered to every consumer for ever, and nothing after it."""
    bus = await nats_world.bus()
    await bus.ensure(COMMANDS)
    await bus.ensure(DEAD)
    await bus.publish(message("dray.cmd.a", "x" * (MOST_BYTES - 50)))
    await bus.publish(message("dray.cmd.b"))
    async with asyncio.timeout(BOUND_S), aclosing(bus.consume("COMMANDS", durable="d")) as consumer:
        first, second = [await anext(consumer), await anext(consumer)]
        await first.reject("nobody knows what that is")
        await second.reject("nor this")
    assert [one.subject for one in await snapshot(bus.read("DEAD"))] == ["dray.dead.cmd.b"]
