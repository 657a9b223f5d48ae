"""A recorder writes what the stream holds, then everything that comes, and what it missed."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from dray.bus.memory import MemoryBus
from dray.bus.ports import StreamMissingError
from dray.bus.topology import FACTS_STREAM, INPUTS_STREAM, STREAMS, log_spec
from dray.messages.base import Outgoing, UndecodableMessageError, encode
from dray.messages.decisions import Opened, log_subject
from dray.messages.facts import DomainObserved, Synced, Tick
from dray.messages.inputs import ControllerNoted
from dray.recording.lines import (
    FactLine,
    GapLine,
    Header,
    InputLine,
    RecordLine,
    StreamLine,
    WholeLine,
)
from dray.recording.recorder import Recorder

HEADER = Header(dray="1.0")
FACTS = next(spec for spec in STREAMS if spec.name == FACTS_STREAM)
INPUTS = next(spec for spec in STREAMS if spec.name == INPUTS_STREAM)


def tick(at: int) -> Outgoing:
    return encode(Tick(revision=at, now_unix_s=float(at)), source="test")


def synced() -> Outgoing:
    return encode(Synced(revision=1, instance="test"), source="test")


async def open_log(bus: MemoryBus, domain: str, epoch: int) -> None:
    """As the claim-controller does: the log first, then its announcement."""
    await bus.ensure(log_spec(domain, epoch))
    opened = Opened(domain=domain, epoch=epoch, writer="c", facts_sequence=0, now_unix_s=0.0)
    message = encode(opened, source="test")
    subject = log_subject(domain, epoch)
    await bus.append(Outgoing(subject, message.payload, message.headers), expected_last=0)
    announced = DomainObserved(revision=epoch, domain=domain, epoch=epoch)
    await bus.publish(encode(announced, source="test"))


@asynccontextmanager
async def recording(bus: MemoryBus):
    """The lines of a recorder that runs meanwhile."""
    lines: list = []
    running = asyncio.create_task(Recorder(bus, HEADER, lines.append).run())
    try:
        yield lines
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


def sequences(lines) -> list[int]:
    return [line.sequence for line in lines if isinstance(line, FactLine)]


def records(lines) -> list[tuple[str, int, int]]:
    found = [line for line in lines if isinstance(line, RecordLine)]
    return [(line.domain, line.epoch, line.sequence) for line in found]


@pytest.fixture
async def bus():
    bus = MemoryBus()
    await bus.ensure(FACTS)
    return bus


async def test_it_begins_with_what_is_left_of_the_facts_and_follows(bus):
    for at in (1, 2, 3):
        await bus.publish(tick(at))
    await bus.publish(synced())

    async with recording(bus) as lines:
        await until(lambda: sequences(lines) == [3, 4])
        assert isinstance(lines[0], Header)
        assert WholeLine(sequence=4) in lines
        await bus.publish(tick(5))
        await until(lambda: sequences(lines) == [3, 4, 5])

    assert [line.sequence for line in lines if isinstance(line, WholeLine)] == [4]
    assert [line for line in lines if isinstance(line, GapLine)] == [GapLine(first=1, last=2)]


async def test_first_facts_that_nothing_replaced_are_not_the_checkpoint(bus):
    await bus.publish(synced())
    for at in (2, 3, 4):
        await bus.publish(tick(at))

    async with recording(bus) as lines:
        await until(lambda: sequences(lines) == [1, 4])

    assert [line for line in lines if isinstance(line, WholeLine)] == [WholeLine(sequence=4)]
    assert lines[-1] == WholeLine(sequence=4)


async def test_only_what_comes_after_the_checkpoint_counts_as_an_event(bus):
    await bus.publish(synced())
    await open_log(bus, "early", 1)
    recorder = Recorder(bus, HEADER, lambda line: None)
    running = asyncio.create_task(recorder.run())

    await until(lambda: recorder.counts.records == 1)
    assert recorder.counts.events == 0
    await bus.publish(tick(1))
    await until(lambda: recorder.counts.facts == 3)
    running.cancel()

    assert recorder.counts.events == 1


async def test_the_logs_of_all_domains_are_read_whole(bus):
    await open_log(bus, "early", 1)

    async with recording(bus) as lines:
        await until(lambda: records(lines) == [("early", 1, 1)])
        await open_log(bus, "late", 1)
        await open_log(bus, "early", 2)
        await until(lambda: len(records(lines)) == 3)

    assert records(lines) == [("early", 1, 1), ("late", 1, 1), ("early", 2, 1)]
    assert lines[0].domains == ("early",)
    assert set(lines[0].streams) == {FACTS_STREAM, "DRAY_DECISIONS_early_1"}


async def test_facts_replaced_before_they_were_read_are_a_gap(bus):
    await bus.publish(synced())
    async with recording(bus) as lines:
        await until(lambda: sequences(lines) == [1])
        bus.disconnect()
        elsewhere = bus.peer()
        for at in (2, 3, 4):
            await elsewhere.publish(tick(at))
        bus.reconnect()
        await until(lambda: sequences(lines) == [1, 4])
        await until(lambda: isinstance(lines[-1], WholeLine))

    assert lines[-3:] == [GapLine(first=2, last=3), lines[-2], WholeLine(sequence=4)]


async def test_a_recreated_facts_stream_begins_again(bus):
    await bus.publish(synced())
    async with recording(bus) as lines:
        await until(lambda: sequences(lines) == [1])
        await bus.delete_stream(FACTS_STREAM)
        await bus.ensure(FACTS)
        await bus.publish(tick(9))
        await until(lambda: len(sequences(lines)) == 2)

    assert sequences(lines) == [1, 1]
    (again,) = [line for line in lines if isinstance(line, StreamLine)]
    assert again.name == FACTS_STREAM
    assert again.created != lines[0].streams[FACTS_STREAM]
    assert lines[-1] == WholeLine(sequence=1)


async def test_an_empty_stream_is_a_state_too(bus):
    async with recording(bus) as lines:
        await until(lambda: len(lines) == 2)
        await bus.publish(tick(1))
        await until(lambda: sequences(lines) == [1])

    assert lines[1] == WholeLine(sequence=0)


async def test_without_facts_there_is_nothing_to_record():
    with pytest.raises(StreamMissingError, match="claim-controller"):
        await Recorder(MemoryBus(), HEADER, lambda line: None).run()


async def test_what_is_not_json_is_refused_with_its_place(bus):
    await bus.publish(Outgoing("dray.state.tick.v1", b"{", {}))

    with pytest.raises(UndecodableMessageError, match="message 1 of DRAY_FACTS"):
        await Recorder(bus, HEADER, lambda line: None).run()


def noted(number: int, what: str = "consumed", *, redacted: bool = True) -> Outgoing:
    line = ControllerNoted(instance="c", life="1", number=number, what=what, redacted=redacted)
    return encode(line, source="test")


def numbers(lines) -> list[int]:
    found = [json.loads(bytes(x.payload)) for x in lines if isinstance(x, InputLine)]
    return [line["number"] for line in found]


async def test_journals_are_recorded_from_where_a_replay_can_begin(bus):
    await bus.ensure(INPUTS)
    await bus.publish(synced())
    for number, what in enumerate(("consumed", "known", "decided"), 1):
        await bus.publish(noted(number, what))

    async with recording(bus) as lines:
        await until(lambda: numbers(lines) == [2, 3])
        await bus.publish(noted(4))
        await until(lambda: numbers(lines) == [2, 3, 4])


async def test_of_a_recreated_stream_of_inputs_everything_is_new(bus):
    await bus.ensure(INPUTS)
    await bus.publish(synced())
    async with recording(bus) as lines:
        await until(lambda: len(lines) == 3)
        await bus.publish(noted(1))
        await until(lambda: numbers(lines) == [1])
        await bus.delete_stream(INPUTS_STREAM)
        await bus.ensure(INPUTS)
        await bus.publish(noted(2))
        await until(lambda: numbers(lines) == [1, 2])


@pytest.mark.parametrize("before", [True, False])
async def test_what_a_service_of_an_earlier_release_wrote_is_left_out(bus, before):
    """It holds whole pods."""
    await bus.ensure(INPUTS)
    await bus.publish(synced())
    lines: list = []
    recorder = Recorder(bus, HEADER, lines.append)
    if before:
        await bus.publish(noted(1, redacted=False))
    running = asyncio.create_task(recorder.run())
    await until(lambda: recorder.following_inputs)
    if not before:
        await bus.publish(noted(1, redacted=False))
    await bus.publish(noted(2))
    await until(lambda: numbers(lines) == [2])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert recorder.counts.left_out == 1
    assert recorder.counts.inputs == 1


async def test_an_input_that_is_nested_deep_is_recorded(bus):
    await bus.ensure(INPUTS)
    await bus.publish(synced())
    async with recording(bus) as lines:
        deep = b'{"request":' + b"[" * 10_000 + b"]" * 10_000 + b',"redacted":false}'
        await bus.publish(Outgoing("dray.input.webhook.v1.w", deep, {}))
        await bus.publish(noted(2))
        await until(lambda: numbers(lines) == [2])


async def test_an_input_that_is_not_a_message_is_left_out(bus):
    await bus.ensure(INPUTS)
    await bus.publish(synced())
    async with recording(bus) as lines:
        await bus.publish(Outgoing("dray.input.webhook.v1.w", b"[1]", {}))
        await bus.publish(noted(2))
        await until(lambda: numbers(lines) == [2])
