"""Streams: storing, compaction, ids, readers."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest
from tests.contract.bus.conftest import NatsWorld
from tests.contract.bus.messages import LATEST, LOG, message, snapshot

from dray.bus.jetstream import JetStreamBus
from dray.bus.jetstream_api import ask, stream_info
from dray.bus.jetstream_readings import make
from dray.bus.ports import Bus, NoRoomError, StaleSequenceError, StreamMissingError, StreamSpec
from dray.messages.base import Delivered
from dray.messages.rpc import Reading


async def test_a_stream_is_made_once(bus: Bus) -> None:
    assert await bus.ensure(LOG) is True
    assert await bus.ensure(LOG) is False
    state = await bus.state("LOG")
    assert state is not None
    assert (state.name, state.last_sequence) == ("LOG", 0)
    assert state.created


async def test_a_changed_specification_is_taken_over(bus: Bus) -> None:
    await bus.ensure(StreamSpec("S", ("t.a",)))
    assert await bus.ensure(StreamSpec("S", ("t.a", "t.b"))) is False
    assert await bus.publish(message("t.b")) == 1


async def test_a_stream_keeps_no_more_bytes_than_it_may(bus: Bus) -> None:
    """The oldest messages go, and writers and readers see no error."""
    await bus.ensure(StreamSpec("S", ("t.a",), max_bytes=100_000))
    for number in range(1, 11):
        assert await bus.publish(message("t.a", "x" * 30_000)) == number
    got = await snapshot(bus.read("S"))
    assert [m.sequence for m in got] == [8, 9, 10]
    state = await bus.state("S")
    assert state is not None
    assert (state.first_sequence, state.last_sequence) == (8, 10)


async def test_a_stream_that_exists_is_given_a_limit(bus: Bus) -> None:
    await bus.ensure(StreamSpec("S", ("t.a",)))
    for _ in range(10):
        await bus.publish(message("t.a", "x" * 30_000))
    await bus.ensure(StreamSpec("S", ("t.a",), max_bytes=100_000))
    await bus.publish(message("t.a", "x" * 30_000))
    assert [m.sequence for m in await snapshot(bus.read("S"))] == [9, 10, 11]


async def test_thousands_read_one_stream(nats_world: NatsWorld) -> None:
    """By default, nats-server 2.15 allows 1,000 consumers: large clusters have more nodes. A stream
    that was made without a limit gets it, too."""
    bus = await nats_world.bus()
    assert isinstance(bus, JetStreamBus)
    await bus.ensure(LOG)
    session = bus._connection.session()
    config = (await stream_info(session, "LOG"))["config"]
    await ask(session, "STREAM.UPDATE.LOG", {**config, "max_consumers": -1})
    assert await bus.ensure(LOG) is False
    await bus.publish(message("t.log.1"))
    reading = Reading(stream="LOG", start=1)
    opened = await asyncio.gather(*(make(session, reading) for _ in range(1_010)))
    assert not any(reply.error for reply in opened)
    assert [one.sequence for one in await snapshot(bus.read("LOG"))] == [1]


async def test_a_stream_has_the_consumers_that_its_account_allows(nats_world: NatsWorld) -> None:
    """An account limit is also one of what a stream may name."""
    limits = "max_mem: 1G, max_file: 1G, max_streams: 9, max_consumers: 20"
    user = "users: [{user: a, password: a}]"
    await nats_world.down()
    nats_world.configuration = (
        f"accounts {{ A {{ jetstream: {{ {limits} }}, {user} }} }}\nno_auth_user: a\n"
    )
    await nats_world.up(empty=True)
    bus = await nats_world.bus()
    assert isinstance(bus, JetStreamBus)
    assert await bus.ensure(LOG) is True
    longer = replace(LOG, max_age_s=3600)
    assert await bus.ensure(longer) is False
    session = bus._connection.session()
    config = (await stream_info(session, "LOG"))["config"]
    assert (config["max_consumers"], config["max_age"]) == (-1, 3600 * 10**9)
    reading = Reading(stream="LOG", start=1)
    opened = await asyncio.gather(*(make(session, reading) for _ in range(20)))
    assert not any(reply.error for reply in opened)


async def test_a_limit_that_the_server_has_no_room_for_is_refused_as_such(bus: Bus) -> None:
    too_much = StreamSpec("S", ("t.a",), max_bytes=2**60)
    with pytest.raises(NoRoomError):
        await bus.ensure(too_much)
    assert await bus.ensure(replace(too_much, max_bytes=None)) is True
    with pytest.raises(NoRoomError):
        await bus.ensure(too_much)


async def test_a_missing_stream_is_named_as_missing(bus: Bus) -> None:
    assert await bus.state("LOG") is None
    await bus.delete_stream("LOG")
    with pytest.raises(StreamMissingError):
        await bus.publish(message("t.log.1"))
    with pytest.raises(StreamMissingError):
        await bus.append(message("t.log.1"), expected_last=0)
    with pytest.raises(StreamMissingError):
        await anext(bus.read("LOG"))
    with pytest.raises(StreamMissingError):
        await anext(bus.consume("LOG", durable="d"))


async def test_stored_messages_are_delivered_unchanged(bus: Bus) -> None:
    await bus.ensure(LOG)
    sequence = await bus.publish(message("t.log.1", '{"ä": 1}', ce_type="x", traceparent="00-1"))
    (got,) = await snapshot(bus.read("LOG"))
    assert got.payload == '{"ä": 1}'.encode()
    assert got.headers["ce-type"] == "x"
    assert got.headers["traceparent"] == "00-1"
    assert (got.subject, got.stream, got.sequence) == ("t.log.1", "LOG", sequence)
    assert got.time_unix_s > 1.7e9


async def test_a_repeated_id_is_stored_once(bus: Bus) -> None:
    await bus.ensure(StreamSpec("S", ("t.a",)))
    first = await bus.publish(message("t.a", Nats_Msg_Id="one"))
    assert await bus.publish(message("t.a", Nats_Msg_Id="one")) == first
    assert await bus.publish(message("t.a", Nats_Msg_Id="two")) == first + 1


async def test_a_reader_gets_the_last_value_of_every_subject_in_order(bus: Bus) -> None:
    await bus.ensure(LATEST)
    for subject, text in (("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2")):
        await bus.publish(message(f"t.latest.{subject}", text))
    got = await snapshot(bus.read("LATEST"))
    assert [(m.subject[-1], m.payload) for m in got] == [("a", b"2"), ("c", b"1"), ("b", b"2")]
    assert [m.pending for m in got] == [2, 1, 0]
    assert [m.sequence for m in got] == [3, 4, 5]


async def test_a_reader_starts_at_its_position_and_reads_its_subjects(bus: Bus) -> None:
    await bus.ensure(StreamSpec("S", ("t.>",)))
    for number in range(6):
        await bus.publish(message(f"t.{'even' if number % 2 == 0 else 'odd'}.{number}"))
    got = await snapshot(bus.read("S", subjects=["t.odd.*"], start=3))
    assert [m.sequence for m in got] == [4, 6]


async def test_stored_messages_come_at_once_and_in_order(bus: Bus) -> None:
    await bus.ensure(LOG)
    count = 700
    await asyncio.gather(
        *(bus.append(message("t.log.1", str(n)), expected_last=n) for n in range(count))
    )
    got: list[Delivered] = []
    batches = bus.read_batches("LOG", start=2)
    async with asyncio.timeout(60), aclosing(batches) as reader:  # type: ignore[type-var]
        async for batch in reader:
            assert batch
            got += batch
            if got[-1].pending == 0:
                break
    assert [m.sequence for m in got] == list(range(2, count + 1))
    assert got[0].pending > 0


async def test_messages_below_a_sequence_are_removed_and_the_count_goes_on(bus: Bus) -> None:
    await bus.ensure(LOG)
    for number in range(1, 6):
        await bus.append(message("t.log.1", str(number)), expected_last=number - 1)
    await bus.purge("LOG", 4)
    state = await bus.state("LOG")
    assert state is not None
    assert (state.first_sequence, state.last_sequence) == (4, 5)
    assert [m.sequence for m in await snapshot(bus.read("LOG"))] == [4, 5]
    with pytest.raises(StaleSequenceError):
        await bus.append(message("t.log.1"), expected_last=3)
    assert await bus.append(message("t.log.1"), expected_last=5) == 6
    await bus.purge("LOG", 3)
    assert [m.sequence for m in await snapshot(bus.read("LOG", start=2))] == [4, 5, 6]
    await bus.purge("NONE", 3)


async def test_a_reader_goes_on_behind_what_was_removed_before_it(bus: Bus) -> None:
    await bus.ensure(LOG)
    for number in range(1, 4):
        await bus.append(message("t.log.1", str(number)), expected_last=number - 1)
    async with aclosing(bus.read("LOG")) as reader:
        assert [(await anext(reader)).sequence for _ in range(3)] == [1, 2, 3]
        await bus.append(message("t.log.1", "4"), expected_last=3)
        await bus.purge("LOG", 4)
        await bus.append(message("t.log.1", "5"), expected_last=4)
        assert [(await anext(reader)).sequence for _ in range(2)] == [4, 5]


async def test_hundreds_of_streams_are_listed(bus: Bus) -> None:
    """JetStream answers with 256 at a time."""
    names = [f"S_{number:03d}" for number in range(300)]
    for name in names:
        await bus.ensure(StreamSpec(name, (f"t.{name}",)))
    assert [state.name for state in await bus.streams("S_")] == names


async def test_the_streams_of_a_prefix_are_named_and_their_bytes_counted(bus: Bus) -> None:
    await bus.ensure(LOG)
    for name in ("S_2", "S_1"):
        await bus.ensure(StreamSpec(name, (f"t.{name}",)))
    assert [state.name for state in await bus.streams("S_")] == ["S_1", "S_2"]
    assert await bus.streams("S_") == tuple([await bus.state(name) for name in ("S_1", "S_2")])
    before = (await bus.store_use()).bytes
    await bus.publish(message("t.S_1", "x" * 1000))
    state = await bus.state("S_1")
    assert state is not None
    assert state.bytes >= 1000
    assert (await bus.store_use()).bytes >= before + 1000
    await bus.purge("S_1", 2)
    assert (await bus.store_use()).bytes < before + 1000


async def test_a_reader_follows_the_tail(bus: Bus) -> None:
    await bus.ensure(LOG)
    async with asyncio.timeout(60), aclosing(bus.read("LOG")) as reader:
        for number in range(3):
            await bus.publish(message("t.log.1", str(number)))
            assert (await anext(reader)).payload == str(number).encode()


async def test_more_than_one_batch_is_read_in_order(bus: Bus) -> None:
    await bus.ensure(LOG)
    count = 700
    await asyncio.gather(
        *(bus.append(message("t.log.1", str(n)), expected_last=n) for n in range(count))
    )
    got = await snapshot(bus.read("LOG"))
    assert [m.payload for m in got] == [str(n).encode() for n in range(count)]


async def test_a_tombstone_expires(bus: Bus, eventually) -> None:
    await bus.ensure(LATEST)
    await bus.publish(message("t.latest.gone", Nats_TTL="1s"))
    await bus.publish(message("t.latest.stays"))

    async def gone() -> bool:
        got = await snapshot(bus.read("LATEST"))
        return [m.subject for m in got] == ["t.latest.stays"]

    assert not await gone()
    await eventually(gone)


async def test_a_stream_that_was_created_again_is_recognised(bus: Bus) -> None:
    await bus.ensure(LOG)
    before = await bus.state("LOG")
    await bus.delete_stream("LOG")
    await bus.ensure(LOG)
    after = await bus.state("LOG")
    assert before is not None
    assert after is not None
    assert before.created != after.created


async def test_a_reader_of_a_deleted_stream_gets_an_error(bus: Bus) -> None:
    await bus.ensure(LOG)
    await bus.publish(message("t.log.1"))
    async with asyncio.timeout(60), aclosing(bus.read("LOG")) as reader:
        await anext(reader)
        waiting = asyncio.ensure_future(anext(reader))
        await bus.delete_stream("LOG")
        await bus.ensure(LOG)
        await bus.publish(message("t.log.1"))
        with pytest.raises(StreamMissingError):
            await waiting


async def test_notify_does_not_wait_and_an_unkept_subject_is_fine(bus: Bus) -> None:
    await bus.notify("t.nobody", b"{}")


async def test_the_newest_message_of_a_subject_can_be_asked_for(bus: Bus) -> None:
    await bus.ensure(LATEST)
    assert await bus.last("LATEST", "t.latest.a") is None
    await bus.publish(message("t.latest.a", "1"))
    sequence = await bus.publish(message("t.latest.a", '{"ä": 2}', ce_type="x"))
    await bus.publish(message("t.latest.b", "3"))
    last = await bus.last("LATEST", "t.latest.a")
    assert last is not None
    assert (last.sequence, last.payload.decode()) == (sequence, '{"ä": 2}')
    assert (last.subject, last.stream, last.headers["ce-type"]) == ("t.latest.a", "LATEST", "x")
    assert last.time_unix_s > 0
    with pytest.raises(StreamMissingError):
        await bus.last("NONE", "t.latest.a")
