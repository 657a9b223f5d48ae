"""Facts as a replica reads them from the bus: of the pools it attends, in order, none missing."""

import asyncio
from collections.abc import Callable

import pytest

from dray.bus.memory import MemoryBus
from dray.bus.topology import FACTS_STREAM, STREAMS
from dray.messages.base import Message, encode
from dray.messages.facts import ClaimObserved, DomainObserved, PodObserved, Synced
from dray_allocator.core.handle import handle
from dray_allocator.service.facts_consumer import FactsReader
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import Event, FactSeen, FactsLost


class Reading:
    """A reader and the state that it fills."""

    def __init__(self, bus: MemoryBus) -> None:
        self.state = AllocatorState()
        self.lost = 0
        self.meanwhile: Callable[[], None] | None = None
        """Called once, while the core applies a fact."""
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.reader = FactsReader(bus, self.state, self.fold, self.hand, self.give_up)
        self.task = asyncio.create_task(self.reader.run())

    def fold(self, event: Event) -> None:
        handle(self.state, event)

    async def hand(self, event: Event, cause: str = "") -> None:
        self.lost += isinstance(event, FactsLost)
        handle(self.state, event)
        if isinstance(event, FactSeen) and self.meanwhile is not None:
            self.meanwhile()
            self.meanwhile = None
        await asyncio.sleep(0)
        await self.may_go_on.wait()

    async def give_up(self, fault: str) -> None:
        raise AssertionError(fault)

    @property
    def claims(self) -> list[str]:
        return sorted(self.state.facts.claims)


class SlowBus(MemoryBus):
    """Whose readings of what was there before stop after some messages, and whose answer about
    streams takes as long as it is set to."""

    def __init__(self) -> None:
        super().__init__()
        self.stops_after: int | None = None
        self.reads_on, self.answers = asyncio.Event(), asyncio.Event()
        self.answers.set()

    async def state(self, stream):
        await self.answers.wait()
        return await super().state(stream)

    async def read_batches(self, stream, *, subjects=(), start=1):
        stops_after, count = self.stops_after if start == 1 else None, 0
        async for batch in super().read_batches(stream, subjects=subjects, start=start):
            for delivered in batch if stops_after is not None else ():
                if count == stops_after:
                    await self.reads_on.wait()
                count += 1
                yield [delivered]
            if stops_after is None:
                yield batch


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def publish(bus: MemoryBus, *facts: Message) -> None:
    for fact in facts:
        await bus.publish(encode(fact, source="/c"))


async def submit(bus: MemoryBus, make, uid: str, pool: str, revision: int = 1) -> None:
    claim = make.a_claim(uid, make.ask(), pool)
    pod = make.a_pod(uid, pool)
    await publish(
        bus,
        ClaimObserved(revision=revision, claim=claim),
        PodObserved(revision=revision, pod=pod),
    )


@pytest.fixture
async def bus() -> MemoryBus:
    made = SlowBus()
    for spec in STREAMS:
        await made.ensure(spec)
    for pool in ("a", "b"):
        await publish(made, DomainObserved(revision=1, domain=pool, epoch=1))
    await publish(made, Synced(revision=1, instance="c"))
    return made


@pytest.fixture
async def reading(bus):
    made = Reading(bus)
    yield made
    made.task.cancel()
    await asyncio.wait([made.task])


async def test_a_newly_subscribed_pool_is_read_from_its_beginning(bus, reading, make_world):
    await submit(bus, make_world, "p", "a")
    await submit(bus, make_world, "q", "b")
    reading.reader.subscribe(("a",))
    await until(lambda: reading.claims == ["claim-p"])
    reading.reader.subscribe(("a", "b"))
    await until(lambda: reading.state.subscriptions.is_caught_up("b", reading.state.facts.position))
    assert reading.claims == ["claim-p", "claim-q"]
    await submit(bus, make_world, "r", "b")
    await until(lambda: reading.claims == ["claim-p", "claim-q", "claim-r"])
    reading.reader.subscribe(("a",))
    await until(lambda: reading.claims == ["claim-p"])


async def test_a_pool_without_facts_is_known_as_well(bus, reading):
    reading.reader.subscribe(("a",))
    await until(lambda: reading.state.facts.synced)
    reading.reader.subscribe(("a", "b"))
    await until(lambda: reading.state.subscriptions.is_caught_up("b", reading.state.facts.position))


async def test_facts_that_come_while_others_are_attended_are_not_missed(bus, reading, make_world):
    reading.reader.subscribe(())
    wanted = [(), ("a",), ("a", "b"), ("b",), None]
    for number in range(60):
        await submit(bus, make_world, f"p{number}", "ab"[number % 2])
        reading.reader.subscribe(wanted[number % len(wanted)])
        await asyncio.sleep(0)
    reading.reader.subscribe(None)
    await until(lambda: reading.state.subscriptions.has_read_all(reading.state.facts.position))
    await until(lambda: len(reading.claims) == 60)
    assert len(reading.state.facts.pods) == 60


async def test_facts_created_again_are_noticed_between_two_readings(bus, reading, make_world):
    await submit(bus, make_world, "p", "a")
    reading.reader.subscribe(("a",))
    await until(lambda: reading.claims == ["claim-p"])
    await bus.delete_stream(FACTS_STREAM)
    for spec in STREAMS:
        await bus.ensure(spec)
    await publish(bus, DomainObserved(revision=1, domain="a", epoch=1))
    await submit(bus, make_world, "q", "a")
    reading.reader.subscribe(("a", "b"))
    await until(lambda: reading.claims == ["claim-q"])
    assert reading.lost > 0


async def turns(count: int = 300) -> None:
    """What is under way goes on as far as it can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_half_of_a_reading_that_was_given_up_does_not_pass_for_all(bus, reading, make_world):
    for number in range(20):
        await submit(bus, make_world, f"b{number}", "b")
    reading.reader.subscribe(("a",))
    await until(lambda: reading.state.facts.synced)
    bus.stops_after = 10
    reading.reader.subscribe(("a", "b"))
    await until(lambda: len(reading.claims) > 3)
    bus.answers.clear()
    reading.reader.subscribe(("a",))
    await until(lambda: reading.claims == [])
    reading.reader.subscribe(("a", "b"))
    await turns()
    bus.stops_after = None
    bus.answers.set()
    await turns()
    bus.reads_on.set()
    await until(lambda: reading.state.subscriptions.is_caught_up("b", reading.state.facts.position))
    assert len(reading.claims) == len(reading.state.facts.pods) == 20


async def test_the_core_gets_what_is_read(bus, reading, make_world):
    """Less is wanted while the core still applies more."""
    reading.reader.subscribe(("a", "b"))
    await until(lambda: reading.state.subscriptions.is_caught_up("b", reading.state.facts.position))
    reading.may_go_on.clear()
    reading.reader.subscribe(("a", "b", "c"))
    await turns()
    reading.reader.subscribe(("a",))
    await submit(bus, make_world, "p", "b")
    await submit(bus, make_world, "q", "a")
    reading.may_go_on.set()
    await asyncio.sleep(0)
    reading.may_go_on.clear()
    await turns()
    reading.reader.subscribe(("a", "b"))
    reading.may_go_on.set()
    await until(lambda: reading.claims == ["claim-p", "claim-q"])


async def test_less_may_be_wanted_while_what_is_at_hand_is_taken(bus, reading, make_world):
    """Of facts that came at once, those behind are read again, by what is wanted then."""
    for number in range(200):
        await submit(bus, make_world, f"p{number}", "ab"[number % 2])
    reading.meanwhile = lambda: reading.reader.subscribe(("a",))
    reading.reader.subscribe(("a", "b"))
    wanted = sorted(f"claim-p{number}" for number in range(0, 200, 2))
    await until(lambda: reading.claims == wanted and len(reading.state.facts.pods) == 100)
    assert reading.meanwhile is None
