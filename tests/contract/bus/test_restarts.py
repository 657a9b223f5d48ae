"""What a server that dies, comes back, or comes back empty means to its clients."""

import asyncio
from contextlib import aclosing

import pytest
from tests.contract.bus.messages import LEASES, LOG

from dray.bus.ports import Bus, BusUnavailableError, Request, StreamMissingError
from dray.messages.base import Outgoing


def record(text: str) -> Outgoing:
    return Outgoing("t.log.1", text.encode(), {})


async def connected(bus: Bus, eventually) -> None:
    async def is_connected() -> bool:
        return bus.connected

    await eventually(is_connected)


async def disconnected(bus: Bus, eventually) -> None:
    async def is_disconnected() -> bool:
        return not bus.connected

    await eventually(is_disconnected)


async def test_calls_fail_as_unavailable_while_the_server_is_away(world, eventually) -> None:
    bus = await world.bus()
    await bus.ensure(LOG)
    await world.down()
    await disconnected(bus, eventually)
    for call in (
        bus.publish(record("x")),
        bus.append(record("x"), expected_last=0),
        bus.state("LOG"),
        bus.ensure(LOG),
        bus.acquire("k", "a", ttl_s=3),
        bus.leases("k."),
        bus.request("t.q", b"", timeout_s=1),
        bus.notify("t.log.1", b""),
    ):
        with pytest.raises(BusUnavailableError):
            await call
    await world.up()
    await connected(bus, eventually)
    assert await bus.append(record("x"), expected_last=0) == 1


async def test_a_reader_goes_on_where_it_was_after_a_restart(world, eventually) -> None:
    bus = await world.bus()
    await bus.ensure(LOG)
    for number in range(5):
        await bus.append(record(str(number)), expected_last=number)
    got = []
    async with asyncio.timeout(60), aclosing(bus.read("LOG")) as reader:
        for _ in range(3):
            got.append((await anext(reader)).payload)
        await world.down()
        await disconnected(bus, eventually)
        await world.up()
        await connected(bus, eventually)
        await bus.append(record("5"), expected_last=5)
        while len(got) < 6:
            got.append((await anext(reader)).payload)
    assert got == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_a_reader_that_waits_goes_on_after_a_restart(world, eventually) -> None:
    bus = await world.bus()
    await bus.ensure(LOG)
    await bus.append(record("0"), expected_last=0)
    async with asyncio.timeout(60), aclosing(bus.read("LOG")) as reader:
        await anext(reader)
        waiting = asyncio.ensure_future(anext(reader))
        await world.down()
        await disconnected(bus, eventually)
        await world.up()
        await connected(bus, eventually)
        await bus.append(record("1"), expected_last=1)
        assert (await waiting).payload == b"1"


@pytest.mark.parametrize("made_again", [False, True])
async def test_a_reader_gets_an_error_when_the_server_comes_back_empty(
    world, eventually, made_again: bool
) -> None:
    bus, other = await world.bus(), await world.bus()
    await bus.ensure(LOG)
    await bus.append(record("0"), expected_last=0)
    async with asyncio.timeout(60), aclosing(bus.read("LOG")) as reader:
        await anext(reader)
        waiting = asyncio.ensure_future(anext(reader))
        await world.down()
        await disconnected(bus, eventually)
        await world.up(empty=True)
        if made_again:
            await connected(other, eventually)
            await other.ensure(LOG)
            await other.append(record("another"), expected_last=0)
        with pytest.raises(StreamMissingError):
            await waiting


async def test_a_reader_begun_while_the_server_is_away_waits_for_it(world, eventually) -> None:
    bus = await world.bus()
    await bus.ensure(LOG)
    await bus.append(record("0"), expected_last=0)
    await world.down()
    await disconnected(bus, eventually)
    async with asyncio.timeout(60), aclosing(bus.read("LOG")) as reader:
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        await world.up()
        assert (await waiting).payload == b"0"


async def test_a_consumer_goes_on_after_a_restart(world, eventually) -> None:
    bus = await world.bus()
    await bus.ensure(LOG)
    await bus.publish(record("0"))
    async with asyncio.timeout(60), aclosing(bus.consume("LOG", durable="d")) as consumer:
        delivery = await anext(consumer)
        await delivery.ack()
        waiting = asyncio.ensure_future(anext(consumer))
        await world.down()
        await disconnected(bus, eventually)
        await world.up()
        await connected(bus, eventually)
        await bus.publish(record("1"))
        while (delivery := await waiting).message.payload == b"0":
            # The server lost the acknowledgement: at least once.
            await delivery.ack()
            waiting = asyncio.ensure_future(anext(consumer))
        assert delivery.message.payload == b"1"


async def test_questions_are_answered_again_after_a_restart(world, eventually) -> None:
    asking, answering = await world.bus(), await world.bus()

    async def answer(request: Request) -> bytes:
        return request.payload.upper()

    async def answered() -> bool:
        try:
            return await asking.request("t.q", b"hello", timeout_s=1) == b"HELLO"
        except BusUnavailableError:
            return False

    serving = asyncio.create_task(answering.serve("t.q", answer, queue="q"))
    await eventually(answered)
    await world.down()
    await disconnected(answering, eventually)
    await world.up()
    await eventually(answered)
    serving.cancel()


async def test_leases_are_taken_again_after_the_store_is_lost(world, eventually) -> None:
    bus = await world.bus()
    await bus.ensure(LEASES)
    assert await bus.acquire("domain.p", "a", ttl_s=60)
    assert await bus.acquire_all(("domain.q",), "a", ttl_s=60) == [True]
    await world.down()
    await disconnected(bus, eventually)
    (outcome,) = await bus.acquire_all(("domain.q",), "a", ttl_s=60)
    assert isinstance(outcome, BusUnavailableError)
    await world.up(empty=True)
    await connected(bus, eventually)
    await bus.ensure(LEASES)
    assert await bus.acquire("domain.p", "a", ttl_s=60)
    assert await bus.acquire_all(("domain.q",), "a", ttl_s=60) == [True]


async def test_a_closed_bus_ends_its_readers(world) -> None:
    bus = await world.bus()
    await bus.ensure(LOG)
    waiting = asyncio.ensure_future(anext(bus.read("LOG")))
    await asyncio.sleep(0.01)
    await bus.close()
    with pytest.raises(BusUnavailableError):
        await waiting
    assert not bus.connected


async def test_a_concurrent_reader_sees_every_record_once_over_restarts(world, eventually) -> None:
    writer, reader_bus = await world.bus(), await world.bus()
    await writer.ensure(LOG)
    written = 0
    enough = asyncio.Event()

    async def write() -> None:
        nonlocal written
        while True:
            try:
                written = await writer.append(record("x"), expected_last=written)
            except BusUnavailableError:
                # Unknown: ask the log, as an allocator does before it decides again.
                await connected(writer, eventually)
                try:
                    state = await writer.state("LOG")
                except BusUnavailableError:
                    continue
                assert state is not None
                assert written <= state.last_sequence <= written + 1
                written = state.last_sequence
            if written >= 300:
                enough.set()
            await asyncio.sleep(0)

    seen: list[int] = []

    async def read() -> None:
        async with aclosing(reader_bus.read("LOG")) as reader:
            async for message in reader:
                seen.append(message.sequence)

    tasks = [asyncio.create_task(write()), asyncio.create_task(read())]
    for target in (50, 150):

        async def reached(target: int = target) -> bool:
            return written >= target and len(seen) >= target // 2

        await eventually(reached)
        await world.down()
        await disconnected(writer, eventually)
        await world.up()
    async with asyncio.timeout(60):
        await enough.wait()
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    await connected(writer, eventually)  # Enough may have been written before the last restart.
    state = await writer.state("LOG")
    assert state is not None

    async def all_seen() -> bool:
        return len(seen) >= state.last_sequence

    await eventually(all_seen)
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    assert seen == list(range(1, state.last_sequence + 1))
