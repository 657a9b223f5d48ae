"""What only a real server can refuse."""

import asyncio

import pytest

from dray.api.errors import PermanentError
from dray.bus.jetstream import connect
from dray.bus.ports import Bus, BusUnavailableError, StreamSpec
from dray.bus.topology import STREAMS, log_spec
from dray.messages.base import Outgoing


async def test_nats_server_takes_every_stream_of_the_topology(nats_world) -> None:
    bus = await nats_world.bus()
    for spec in (*STREAMS, log_spec("my.pool", 1)):
        assert await bus.ensure(spec) is True
        assert await bus.ensure(spec) is False


async def test_a_message_that_is_too_long_is_refused_for_good(nats_world) -> None:
    bus = await nats_world.bus()
    await bus.ensure(StreamSpec("S", ("t.s",)))
    with pytest.raises(PermanentError, match=r"t\.s with 2000000 bytes"):
        await bus.publish(Outgoing("t.s", b"x" * 2_000_000))
    assert await bus.publish(Outgoing("t.s", b"x" * 900_000)) == 1


async def test_a_bus_whose_server_is_not_there_yet_connects_when_it_is(
    nats_world, eventually
) -> None:
    await nats_world.down()
    bus: Bus = await connect(nats_world.url, name="early", wait_s=0.01)
    assert not bus.connected
    with pytest.raises(BusUnavailableError):
        await bus.state("S")
    await nats_world.up()

    async def connected() -> bool:
        return bus.connected

    await eventually(connected)
    assert await bus.state("S") is None
    await bus.close()


async def test_handlers_finish_before_the_bus_closes(nats_world) -> None:
    bus, other = await nats_world.bus(), await nats_world.bus()
    await bus.ensure(StreamSpec("S", ("t.s",)))
    writes = [
        asyncio.create_task(bus.append(Outgoing("t.s", b""), expected_last=n)) for n in range(50)
    ]
    await asyncio.sleep(0)
    await bus.close()
    assert await asyncio.gather(*writes) == list(range(1, 51))
    state = await other.state("S")
    assert state is not None
    assert state.last_sequence == 50


async def test_an_append_in_flight_when_the_server_dies_raises_bus_unavailable(
    nats_world, eventually
) -> None:
    bus = await nats_world.bus()
    await bus.ensure(StreamSpec("S", ("t.s",)))

    async def append_until_it_fails() -> int:
        last = 0
        while True:
            last = await bus.append(Outgoing("t.s", b""), expected_last=last)

    writing = asyncio.create_task(append_until_it_fails())

    async def begun() -> bool:
        state = await bus.state("S")
        return state is not None and state.last_sequence > 10

    await eventually(begun)
    await nats_world.down()
    with pytest.raises(BusUnavailableError):
        await writing


async def test_leases_without_a_stream_are_each_refused(nats_world) -> None:
    bus = await nats_world.bus()
    outcomes = await bus.acquire_all(("domain.p", "domain.q"), "a", ttl_s=60)
    assert [type(outcome) for outcome in outcomes] == [BusUnavailableError] * 2
