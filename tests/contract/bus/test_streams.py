"""Streams: storing, compaction, ids, the fence."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from dray.bus.ports import Bus, Fence, StaleSequenceError, StreamMissingError, StreamSpec
from dray.messages.base import Delivered, Outgoing

LOG = StreamSpec("LOG", ("t.log.1",), duplicate_window_s=1.0)
LATEST = StreamSpec("LATEST", ("t.latest.>",), last_per_subject=True, message_ttl=True)


def message(subject: str, text: str = "{}", **headers: str) -> Outgoing:
    return Outgoing(
        subject, text.encode(), {name.replace("_", "-"): text for name, text in headers.items()}
    )


async def snapshot(messages: AsyncIterator[Delivered]) -> list[Delivered]:
    """What a reader gets until nothing is behind it."""
    got: list[Delivered] = []
    async with asyncio.timeout(20), aclosing(messages) as flow:
        async for delivered in flow:
            got.append(delivered)
            if delivered.pending == 0:
                return got
    return got


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


async def test_what_is_stored_is_delivered_as_it_was(bus: Bus) -> None:
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


async def test_a_reader_starts_where_it_is_told_and_reads_what_it_asked_for(bus: Bus) -> None:
    await bus.ensure(StreamSpec("S", ("t.>",)))
    for number in range(6):
        await bus.publish(message(f"t.{'even' if number % 2 == 0 else 'odd'}.{number}"))
    got = await snapshot(bus.read("S", subjects=["t.odd.*"], start=3))
    assert [m.sequence for m in got] == [4, 6]


async def test_what_is_at_hand_comes_at_once_and_in_order(bus: Bus) -> None:
    await bus.ensure(LOG)
    count = 700
    await asyncio.gather(
        *(bus.append(message("t.log.1", str(n)), expected_last=n) for n in range(count))
    )
    got: list[Delivered] = []
    batches = bus.read_batches("LOG", start=2)
    async with asyncio.timeout(20), aclosing(batches) as reader:  # type: ignore[type-var]
        async for batch in reader:
            assert batch
            got += batch
            if got[-1].pending == 0:
                break
    assert [m.sequence for m in got] == list(range(2, count + 1))
    assert got[0].pending > 0


async def test_a_reader_follows_the_tail(bus: Bus) -> None:
    await bus.ensure(LOG)
    async with asyncio.timeout(20), aclosing(bus.read("LOG")) as reader:
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


async def test_an_append_needs_the_last_sequence(bus: Bus) -> None:
    await bus.ensure(LOG)
    assert await bus.append(message("t.log.1"), expected_last=0) == 1
    with pytest.raises(StaleSequenceError, match=r"somebody else appended"):
        await bus.append(message("t.log.1"), expected_last=0)
    with pytest.raises(StaleSequenceError):
        await bus.append(message("t.log.1"), expected_last=2)
    assert await bus.append(message("t.log.1"), expected_last=1) == 2


async def test_an_append_is_never_dropped_as_a_duplicate(bus: Bus) -> None:
    await bus.ensure(LOG)
    for number in range(3):
        sent = message("t.log.1", Nats_Msg_Id="same")
        assert await bus.append(sent, expected_last=number) == number + 1


async def test_pipelined_appends_reach_the_log_in_call_order(bus: Bus) -> None:
    await bus.ensure(LOG)
    sequences = await asyncio.gather(
        *(bus.append(message("t.log.1", str(n)), expected_last=n) for n in range(100))
    )
    assert sequences == list(range(1, 101))


async def test_when_one_of_a_pipeline_fails_those_behind_it_fail_too(bus: Bus) -> None:
    await bus.ensure(LOG)
    outcomes = await asyncio.gather(
        *(bus.append(message("t.log.1"), expected_last=n) for n in (0, 1, 7, 3, 4)),
        return_exceptions=True,
    )
    assert outcomes[:2] == [1, 2]
    assert all(isinstance(outcome, StaleSequenceError) for outcome in outcomes[2:])
    state = await bus.state("LOG")
    assert state is not None
    assert state.last_sequence == 2


async def test_of_two_writers_only_one_adds_each_record(world) -> None:
    first, second = await world.bus(), await world.bus()
    await first.ensure(LOG)
    won: list[tuple[str, int]] = []

    async def write(bus: Bus, name: str) -> None:
        last = 0
        while last < 40:
            try:
                last = await bus.append(message("t.log.1", name), expected_last=last)
                won.append((name, last))
            except StaleSequenceError:
                state = await bus.state("LOG")
                assert state is not None
                last = state.last_sequence

    await asyncio.gather(write(first, "a"), write(second, "b"))
    got = await snapshot(first.read("LOG"))
    assert sorted(sequence for _, sequence in won) == [m.sequence for m in got]
    assert {sequence: name.encode() for name, sequence in won} == {
        m.sequence: m.payload for m in got
    }


async def test_a_purge_does_not_fool_the_fence(world) -> None:
    bus = await world.bus()
    await bus.ensure(LOG)
    await bus.append(message("t.log.1"), expected_last=0)
    await world.purge("LOG")
    with pytest.raises(StaleSequenceError):
        await bus.append(message("t.log.1"), expected_last=0)
    assert await bus.append(message("t.log.1"), expected_last=1) == 2


async def test_a_stream_made_anew_is_told_apart(bus: Bus) -> None:
    await bus.ensure(LOG)
    before = await bus.state("LOG")
    await bus.delete_stream("LOG")
    await bus.ensure(LOG)
    after = await bus.state("LOG")
    assert before is not None
    assert after is not None
    assert before.created != after.created


async def test_a_reader_of_a_stream_that_is_deleted_is_told(bus: Bus) -> None:
    await bus.ensure(LOG)
    await bus.publish(message("t.log.1"))
    async with asyncio.timeout(20), aclosing(bus.read("LOG")) as reader:
        await anext(reader)
        waiting = asyncio.ensure_future(anext(reader))
        await bus.delete_stream("LOG")
        await bus.ensure(LOG)
        await bus.publish(message("t.log.1"))
        with pytest.raises(StreamMissingError):
            await waiting


async def test_notify_does_not_wait_and_an_unkept_subject_is_fine(bus: Bus) -> None:
    await bus.notify("t.nobody", b"{}")


async def test_a_pipeline_breaks_where_somebody_else_took_a_predicted_sequence(bus: Bus) -> None:
    await bus.ensure(LOG)
    await bus.append(message("t.log.1", "theirs"), expected_last=0)
    with pytest.raises(StaleSequenceError):
        await bus.append(message("t.log.1", "first"), expected_last=0, identity="first")
    with pytest.raises(StaleSequenceError):
        await bus.append(
            message("t.log.1", "second"), expected_last=1, identity="second", after="first"
        )
    assert await bus.append(message("t.log.1"), expected_last=1, identity="third") == 2
    assert (
        await bus.append(message("t.log.1"), expected_last=2, identity="fourth", after="third") == 3
    )


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


async def test_a_fence_of_its_own_subject_refuses_who_has_not_seen_the_newest(bus: Bus) -> None:
    await bus.ensure(LATEST)
    subject = "t.latest.a"
    first = await bus.publish(message(subject, "1"), fence=Fence(subject, 0))
    await bus.publish(message("t.latest.b", "other"))
    second = await bus.publish(message(subject, "2"), fence=Fence(subject, first))
    for stale in (0, first, second + 1):
        with pytest.raises(StaleSequenceError):
            await bus.publish(message(subject, "late"), fence=Fence(subject, stale))
    last = await bus.last("LATEST", subject)
    assert last is not None
    assert last.payload == b"2"


async def test_a_fence_of_another_subject_ends_with_its_next_message(bus: Bus) -> None:
    await bus.ensure(LATEST)
    term = "t.latest.term"
    first = await bus.publish(message(term, "one"), fence=Fence(term, 0))
    mine = Fence(term, first)
    for number in range(3):
        await bus.publish(message("t.latest.a", str(number)), fence=mine)
    second = await bus.publish(message(term, "two"), fence=mine)
    for subject in ("t.latest.a", "t.latest.never-written", term):
        with pytest.raises(StaleSequenceError):
            await bus.publish(message(subject, "late"), fence=mine)
    await bus.publish(message("t.latest.a", "of two"), fence=Fence(term, second))


async def test_a_stream_made_anew_refuses_the_fences_of_the_one_before(bus: Bus) -> None:
    await bus.ensure(LATEST)
    mine = Fence("t.latest.term", await bus.publish(message("t.latest.term")))
    await bus.delete_stream("LATEST")
    await bus.ensure(LATEST)
    with pytest.raises(StaleSequenceError):
        await bus.publish(message("t.latest.a"), fence=mine)


async def test_a_fence_of_a_subject_whose_message_expired_is_that_of_an_empty_one(
    bus: Bus, eventually: Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]
) -> None:
    await bus.ensure(LATEST)
    gone = await bus.publish(message("t.latest.gone", Nats_TTL="1s"))

    async def expired() -> bool:
        return await bus.last("LATEST", "t.latest.gone") is None

    await eventually(expired)
    with pytest.raises(StaleSequenceError):
        await bus.publish(message("t.latest.gone"), fence=Fence("t.latest.gone", gone))
    await bus.publish(message("t.latest.gone"), fence=Fence("t.latest.gone", 0))


async def test_the_fence_is_asked_before_duplicates_are_dropped(bus: Bus) -> None:
    await bus.ensure(LATEST)
    subject = "t.latest.a"
    once = message(subject, "1", Nats_Msg_Id="one")
    first = await bus.publish(once, fence=Fence(subject, 0))
    with pytest.raises(StaleSequenceError):
        await bus.publish(once, fence=Fence(subject, 0))
    assert await bus.publish(once, fence=Fence(subject, first)) == first
