"""Fences: who appends has seen all of a log, or the newest of a subject."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from tests.contract.bus.messages import LATEST, LOG, message, snapshot

from dray.api.errors import DrayError
from dray.bus.ports import (
    Bus,
    Fence,
    MessageTooLargeError,
    StaleSequenceError,
    StreamMissingError,
)
from dray.messages.base import Outgoing


async def test_an_append_needs_the_last_sequence(bus: Bus) -> None:
    await bus.ensure(LOG)
    assert await bus.append(message("t.log.1"), expected_last=0) == 1
    with pytest.raises(StaleSequenceError, match=r"another writer appended"):
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


async def test_one_of_two_writers_adds_each_record(world) -> None:
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


async def test_a_pipeline_breaks_if_another_writer_took_a_predicted_sequence(bus: Bus) -> None:
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


async def test_a_fence_of_its_own_subject_refuses_writers_that_lack_the_newest(bus: Bus) -> None:
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


async def test_many_messages_are_stored_in_order_while_more_are_made(bus: Bus) -> None:
    await bus.ensure(LATEST)
    term = await bus.publish(message("t.latest.term"))
    made: list[int] = []

    def batches() -> Iterator[list[Outgoing]]:
        for first in range(0, 3_000, 30):
            made.append(first)
            yield [message(f"t.latest.{n}", str(n)) for n in range(first, first + 30)]
        yield []

    outcomes = await bus.publish_all(batches(), fence=Fence("t.latest.term", term))
    assert outcomes == list(range(term + 1, term + 3_001))
    assert len(made) == 100
    got = await snapshot(bus.read("LATEST", start=term + 1))
    assert [one.payload for one in got] == [str(n).encode() for n in range(3_000)]


@pytest.mark.parametrize("wrong", ["a fence", "a size", "a subject"])
async def test_no_more_messages_are_made_after_one_failed(bus: Bus, wrong: str) -> None:
    await bus.ensure(LATEST)
    term = await bus.publish(message("t.latest.term"))
    good = message("t.latest.a")
    bad, error = {
        "a fence": (good, StaleSequenceError),
        "a size": (Outgoing("t.latest.b", b"x" * 2**20, {"a": "b"}), MessageTooLargeError),
        "a subject": (message("t.other.a"), StreamMissingError),
    }[wrong]
    made: list[int] = []

    def batches() -> Iterator[list[Outgoing]]:
        for number in range(10_000):
            made.append(number)
            yield [good, bad if number == 1 else good]

    fence = Fence("t.latest.term", 0 if wrong == "a fence" else term)
    outcomes = await bus.publish_all(batches(), fence=fence)
    assert len(outcomes) == 2 * len(made)
    assert len(made) < 10_000
    refused = [one for one in outcomes if isinstance(one, DrayError)]
    assert {type(one) for one in refused} == {error}
    assert len(refused) == (len(outcomes) if wrong == "a fence" else 1)


async def test_a_stream_created_again_refuses_the_fences_of_the_one_before(bus: Bus) -> None:
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
