"""What the bus in memory offers to tests beyond the port, and its matching of subjects."""

import asyncio
from contextlib import aclosing

import pytest

from dray.bus.memory import BATCH, MemoryBus
from dray.bus.memory_store import matches
from dray.bus.ports import (
    BusUnavailableError,
    StaleSequenceError,
    StreamMissingError,
    StreamSpec,
)
from dray.messages.base import Outgoing

LOG = StreamSpec("LOG", ("t.log",))


@pytest.mark.parametrize(
    ("subject", "pattern", "matched"),
    [
        ("a.b.c", "a.b.c", True),
        ("a.b.c", "a.*.c", True),
        ("a.b.c", "a.>", True),
        ("a.b.c", "a.b.>", True),
        ("a.b", "a.b.>", False),
        ("a.b.c", "a.b", False),
        ("a.b", "a.b.c", False),
        ("a.b.c", "*.*", False),
        ("a.b.c", "a.x.c", False),
    ],
)
def test_subjects_match_as_in_nats(subject: str, pattern: str, matched: bool) -> None:
    assert matches(subject, pattern) is matched


async def test_an_answer_may_be_lost_after_the_append_was_kept() -> None:
    bus = MemoryBus()
    await bus.ensure(LOG)
    bus.fail_next("append", BusUnavailableError("answer lost"), after=True)
    with pytest.raises(BusUnavailableError):
        await bus.append(Outgoing("t.log", b"1"), expected_last=0)
    with pytest.raises(StaleSequenceError):
        await bus.append(Outgoing("t.log", b"1"), expected_last=0)


async def test_a_writer_may_be_held_before_its_append() -> None:
    zombie = MemoryBus()
    successor = zombie.peer()
    await zombie.ensure(LOG)
    paused, resumed = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        paused.set()
        await resumed.wait()

    zombie.before["append"] = pause
    late = asyncio.create_task(zombie.append(Outgoing("t.log", b"zombie"), expected_last=0))
    await paused.wait()
    assert await successor.append(Outgoing("t.log", b"successor"), expected_last=0) == 1
    resumed.set()
    with pytest.raises(StaleSequenceError):
        await late


async def test_what_is_not_answered_in_time_is_delivered_again() -> None:
    now_unix_s = 1000.0
    bus = MemoryBus(now_unix_s=lambda: now_unix_s)
    await bus.ensure(LOG)
    await bus.publish(Outgoing("t.log", b"1"))
    async with asyncio.timeout(10), aclosing(bus.consume("LOG", durable="d")) as consumer:
        assert (await anext(consumer)).attempts == 1
        now_unix_s += 31.0
        again = await anext(consumer)
        assert again.attempts == 2
        await again.ack()


async def test_messages_age_out() -> None:
    now_unix_s = 1000.0
    bus = MemoryBus(now_unix_s=lambda: now_unix_s)
    await bus.ensure(StreamSpec("AGED", ("t.aged",), max_age_s=60.0))
    await bus.publish(Outgoing("t.aged", b"1"))
    now_unix_s += 61.0
    state = await bus.state("AGED")
    assert state is not None
    assert (state.first_sequence, state.last_sequence) == (2, 1)


async def test_an_id_is_remembered_for_the_window_alone() -> None:
    now_unix_s = 1000.0
    bus = MemoryBus(now_unix_s=lambda: now_unix_s)
    await bus.ensure(StreamSpec("S", ("t.s",), duplicate_window_s=10.0))
    message = Outgoing("t.s", b"1", {"Nats-Msg-Id": "one"})
    assert [await bus.publish(message) for _ in range(2)] == [1, 1]
    now_unix_s += 11.0
    assert await bus.publish(message) == 2


async def test_after_a_deletion_no_more_is_read_than_is_at_hand() -> None:
    bus = MemoryBus()
    await bus.ensure(LOG)
    for number in range(2 * BATCH):
        await bus.append(Outgoing("t.log", b"1"), expected_last=number)
    async with asyncio.timeout(60), aclosing(bus.read("LOG")) as reader:
        await anext(reader)
        await bus.delete_stream("LOG")
        rest = [await anext(reader) for _ in range(BATCH - 1)]
        assert rest[-1].sequence == BATCH
        with pytest.raises(StreamMissingError):
            await anext(reader)
