"""A journal publishes lines in order, in pieces where they are long, and drops the oldest."""

import asyncio
import json

import pytest

from dray.api.errors import PermanentError
from dray.bus.memory import MemoryBus
from dray.bus.ports import BusUnavailableError
from dray.bus.topology import INPUTS_STREAM, STREAMS
from dray.messages.inputs import AgentNoted, ControllerNoted
from dray.recording import journal as journals
from dray.recording.journal import Journal
from dray.runtime.clock import ManualClock


@pytest.fixture
async def bus():
    bus = MemoryBus()
    for spec in STREAMS:
        await bus.ensure(spec)
    return bus


async def published(bus) -> list[dict]:
    state = await bus.state(INPUTS_STREAM)
    if state.last_sequence < state.first_sequence:
        return []
    lines = []
    async for delivered in bus.read(INPUTS_STREAM):
        lines.append(json.loads(delivered.payload))
        if not delivered.pending:
            return lines
    return lines


async def test_lines_are_numbered_and_tell_instance_and_life(bus):
    journal = Journal(bus, AgentNoted, ManualClock(5.0), instance="n1")
    journal.decided("is-live", {"uid": "u"}, False)
    journal.decided("is-live", {"uid": "v"}, True)

    await journal.flush()

    first, second = await published(bus)
    assert (first["instance"], first["life"], first["number"]) == ("n1", "5.000000", 1)
    assert (first["what"], first["about"], first["answer"]) == ("decided", "is-live", False)
    assert (second["number"], second["data"]) == (2, {"uid": "v"})
    assert len(journal) == 0


async def test_what_is_written_is_what_it_was_then(bus):
    journal = Journal(bus, AgentNoted, ManualClock(), instance="n1")
    known = {"cards": 2}
    journal.decided("publish", known, None)
    known["cards"] = 3

    await journal.flush()

    assert (await published(bus))[0]["data"] == {"cards": 2}


async def test_long_lines_are_published_in_parts(bus, monkeypatch):
    monkeypatch.setattr(journals, "LONGEST_TEXT", 50)
    journal = Journal(bus, AgentNoted, ManualClock(), instance="n1")
    journal.decided("publish", {"text": "x" * 60}, {"y": "ü"})

    await journal.flush()

    *parts, last = await published(bus)
    assert {part["what"] for part in parts} == {"part"}
    assert last["what"] == "decided"
    assert "data" not in last
    whole = json.loads("".join(part["data"] for part in parts))
    assert whole == {"data": {"text": "x" * 60}, "answer": {"y": "ü"}}


async def test_polled_rules_are_recorded_when_their_result_changes(bus):
    journal = Journal(bus, AgentNoted, ManualClock(), instance="n1")
    for answer in (None, None, "sick", "sick", None):
        journal.decided("health", {}, answer, polled="health/n1")

    await journal.flush()

    assert [line.get("answer") for line in await published(bus)] == [None, "sick", None]


async def test_while_the_bus_is_away_the_oldest_lines_go_first(bus):
    journal = Journal(bus, AgentNoted, ManualClock(), instance="n1", capacity_bytes=2)
    bus.disconnect()
    for number in range(3):
        journal.decided("publish", number, None)
    with pytest.raises(BusUnavailableError):
        await journal.flush()
    bus.reconnect()

    await journal.flush()

    assert [line["number"] for line in await published(bus)] == [2, 3]
    assert journal.dropped == 1


async def test_a_line_that_the_bus_refuses_ends_nothing(bus, monkeypatch):
    class TooLongError(PermanentError):
        """The server takes no message of this size."""

    publish, refused = bus.publish, []

    async def choosy(message, **more):
        if b'"number":1,' in message.payload:
            refused.append(message)
            raise TooLongError("too long")
        return await publish(message, **more)

    monkeypatch.setattr(bus, "publish", choosy)
    journal = Journal(bus, AgentNoted, ManualClock(), instance="n1")
    for number in range(2):
        journal.decided("publish", number, None)
    running = asyncio.create_task(journal.run())
    async with asyncio.timeout(30):
        while len(journal):  # noqa: ASYNC110
            await asyncio.sleep(0)
    running.cancel()

    assert len(refused) == 1
    assert [line["number"] for line in await published(bus)] == [2]
    assert journal.dropped == 1


async def test_all_that_is_known_is_written_now_and_then(bus):
    clock, cache = ManualClock(), []
    journal = Journal(
        bus, ControllerNoted, clock, instance="c", known=lambda: {"seen": list(cache)}
    )
    for name in ("a", "b"):
        journal.consumed("changed", name)
        cache.append(name)
    await clock.advance(301.0)
    journal.consumed("changed", "c")

    await journal.flush()

    lines = await published(bus)
    assert [line["what"] for line in lines] == ["consumed", "consumed", "known", "consumed"]
    assert lines[2]["data"] == {"seen": ["a", "b"]}
