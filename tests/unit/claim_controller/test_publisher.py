"""Facts and the term that may publish them: who was replaced publishes nothing any more."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing

import pytest

from dray.api.errors import DrayError
from dray.api.names import DRIVER
from dray.bus.memory import MemoryBus
from dray.bus.ports import BusUnavailableError
from dray.bus.topology import FACTS_STREAM, STREAMS
from dray.kube.ports import CLAIMS, NODES, SLICES, Changed, Deleted, Listed, Object
from dray.messages.base import Outgoing, decode, encode, subject_of
from dray.messages.facts import ClaimObserved, Fact, InventoryObserved, SliceObserved, Tick
from dray.runtime.clock import Clock, SystemClock
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RuleRecorder
from dray_claim_controller.facts.decisions import Publish
from dray_claim_controller.publication.publisher import NodeMoves, Publisher, SupersededError


def publisher(
    bus: MemoryBus, cache: ObjectCache, instance: str = "one", clock: Clock | None = None
) -> Publisher:
    node_moves = NodeMoves(lambda *_: 0, tuple)
    return Publisher(bus, cache, clock or SystemClock(), instance=instance, node_moves=node_moves)


class Seconds(SystemClock):
    """A wall clock that stands still, and a monotonic one that is a second later every time."""

    BEGAN_UNIX_S = 1_700_000_000.0

    def __init__(self) -> None:
        self.wall_unix_s = self.BEGAN_UNIX_S
        self._now_s = 1_000.0

    def now_unix_s(self) -> float:
        return self.wall_unix_s

    def monotonic_s(self) -> float:
        self._now_s += 1
        return self._now_s


async def created(bus: MemoryBus) -> str:
    state = await bus.state(FACTS_STREAM)
    assert state is not None
    return state.created


async def facts(bus: MemoryBus) -> list[str]:
    """Subjects of the stream, newest last, but for terms and ticks."""
    found: list[str] = []
    async with aclosing(bus.read(FACTS_STREAM)) as messages:  # type: ignore[type-var]
        async for delivered in messages:
            found.append(delivered.subject)
            if not delivered.pending:
                break
    return [subject for subject in found if ".term." not in subject and ".tick." not in subject]


def node(revision: int = 1) -> Object:
    return {"metadata": {"name": "n1", "uid": "n1-uid", "resourceVersion": str(revision)}}


def one_slice(revision: int, generation: int = 1, name: str = "s") -> Object:
    return {
        "metadata": {"name": name, "uid": f"{name}-uid", "resourceVersion": str(revision)},
        "spec": {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": generation, "resourceSliceCount": 1},
            "devices": [],
        },
    }


async def test_a_leader_that_slept_before_its_publish_changes_nothing(bus: MemoryBus) -> None:
    """The fact it is about to send is older than the next leader's."""
    slept, next_one = ObjectCache(), ObjectCache()
    for cache in (slept, next_one):
        cache.apply(SLICES, Changed(one_slice(5)))
    first = publisher(bus, slept)
    await first.begin(await created(bus))
    await first.flush()

    second = publisher(bus.peer(), next_one, "two")
    await second.begin(await created(bus))
    next_one.apply(SLICES, Changed(one_slice(9, generation=3)))
    await second.flush()

    slept.apply(SLICES, Changed(one_slice(7, generation=2)))
    with pytest.raises(SupersededError):
        await first.flush()
    last = await bus.last(FACTS_STREAM, "dray.state.slice.v1.s")
    assert last is not None
    assert decode(last, SliceObserved).revision == 9


async def test_not_even_what_nobody_has_published_yet(bus: MemoryBus) -> None:
    """The object is gone, and the next leader never knew it: nobody would delete its fact."""
    slept = ObjectCache()
    first = publisher(bus, slept)
    await first.begin(await created(bus))
    await publisher(bus.peer(), ObjectCache(), "two").begin(await created(bus))
    slept.apply(SLICES, Changed(one_slice(5)))
    with pytest.raises(SupersededError):
        await first.flush()
    with pytest.raises(SupersededError):
        await first.tick()
    assert await facts(bus) == []


async def test_nor_in_a_stream_created_again(bus: MemoryBus) -> None:
    slept = ObjectCache()
    first = publisher(bus, slept)
    await first.begin(await created(bus))
    bus.server.lose_everything()
    for spec in STREAMS:
        await bus.ensure(spec)
    await publisher(bus.peer(), ObjectCache(), "two").begin(await created(bus))
    slept.apply(SLICES, Changed(one_slice(5)))
    with pytest.raises(SupersededError):
        await first.flush()
    assert await facts(bus) == []


async def test_of_two_that_begin_at_once_one_leads(bus: MemoryBus) -> None:
    late = bus.peer()
    loser = publisher(late, ObjectCache())

    async def the_other_begins() -> None:
        late.before.clear()
        await publisher(bus, ObjectCache(), "two").begin(await created(bus))

    late.before["publish"] = the_other_begins
    with pytest.raises(SupersededError):
        await loser.begin(await created(bus))


async def test_a_term_knows_what_the_one_before_published(bus: MemoryBus) -> None:
    cache = ObjectCache()
    cache.apply(SLICES, Changed(one_slice(5)))
    first = publisher(bus, cache)
    await first.begin(await created(bus))
    await first.flush()
    second = publisher(bus.peer(), ObjectCache(), "two")
    await second.begin(await created(bus))
    await second.publish_everything()
    last = await bus.last(FACTS_STREAM, "dray.state.slice.v1.s")
    assert last is not None
    assert decode(last, SliceObserved).deleted


async def newest_tick(bus: MemoryBus) -> Tick:
    last = await bus.last(FACTS_STREAM, "dray.state.tick.v1")
    assert last is not None
    return decode(last, Tick)


async def test_a_stream_of_facts_begins_with_the_wall_clocks_time(bus: MemoryBus) -> None:
    """Before anything that says when it was."""
    await publisher(bus, ObjectCache(), clock=Seconds()).begin(await created(bus))
    assert (await newest_tick(bus)).now_unix_s == Seconds.BEGAN_UNIX_S


async def test_ticks_count_on(bus: MemoryBus) -> None:
    for instance in ("one", "two"):
        term = publisher(bus.peer(), ObjectCache(), instance, Seconds())
        await term.begin(await created(bus))
        await term.tick()
        await term.tick()
    assert (await newest_tick(bus)).revision == 5


async def test_a_tick_is_stored_before_or_after_all_that_is_published_together(
    bus: MemoryBus,
) -> None:
    """Allocators count on it: some ticks after a fact, all that was found with it is known."""
    cache = ObjectCache()
    for number in range(200):
        one = one_slice(number + 1)
        one["metadata"] |= {"name": f"s{number}", "uid": f"s{number}-uid"}
        cache.apply(SLICES, Changed(one))
    leader = publisher(bus, cache)
    await leader.begin(await created(bus))
    await asyncio.gather(leader.publish_everything(), leader.tick())
    tick = await bus.last(FACTS_STREAM, "dray.state.tick.v1")
    synced = await bus.last(FACTS_STREAM, "dray.state.synced.v1")
    assert tick is not None
    assert synced is not None
    assert len(await facts(bus)) == 201
    assert tick.sequence == synced.sequence + 1


async def test_the_next_term_goes_on_from_the_last_tick_whatever_its_clock_says(
    bus: MemoryBus,
) -> None:
    await publisher(bus.peer(), ObjectCache(), clock=Seconds()).begin(await created(bus))
    wrong = Seconds()
    wrong.wall_unix_s += 10 * 365 * 86_400
    term = publisher(bus, ObjectCache(), "two", wrong)
    await term.begin(await created(bus))
    await term.tick()
    assert 0 < (await newest_tick(bus)).now_unix_s - Seconds.BEGAN_UNIX_S < 10


# --- health of nodes that are gone ---------------------------------------------------------

SICK = InventoryObserved(revision=4, node="n1", driver=DRIVER, unhealthy=("gpu-0",))


async def health(bus: MemoryBus) -> InventoryObserved:
    last = await bus.last(FACTS_STREAM, subject_of(SICK))
    assert last is not None
    return decode(last, InventoryObserved)


@pytest.mark.parametrize("raises", [False, True])
async def test_what_was_not_published_without_a_bus_is_published_later(
    bus: MemoryBus, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    cache = ObjectCache()
    leader = publisher(bus, cache)
    await leader.begin(await created(bus))
    changed = [one_slice(5, name=f"s-{number:03}") for number in range(200)]
    for obj in changed:
        cache.apply(SLICES, Changed(obj))

    async def away(batches: Iterable[Sequence[Outgoing]], **_: object) -> list[int | DrayError]:
        error = BusUnavailableError("there is no connection to NATS now")
        if raises:
            raise error
        return [error for _ in next(iter(batches))]

    with monkeypatch.context() as lost:
        lost.setattr(bus, "publish_all", away)
        with pytest.raises(BusUnavailableError):
            await leader.flush()
    await leader.flush()
    assert sorted(await facts(bus)) == [f"dray.state.slice.v1.s-{n:03}" for n in range(200)]


async def test_health_of_a_deleted_node_gets_a_tombstone(bus: MemoryBus) -> None:
    cache = ObjectCache()
    cache.apply(NODES, Changed(node()))
    leader = publisher(bus, cache)
    await leader.begin(await created(bus))
    await leader.store(SICK)
    await leader.flush()
    assert await health(bus) == SICK
    cache.apply(NODES, Deleted(node(2)))
    await leader.flush()
    tombstone = await health(bus)
    assert (tombstone.deleted, tombstone.revision) == (True, 5)


async def test_also_where_the_node_went_while_nobody_led(bus: MemoryBus) -> None:
    await bus.publish(encode(SICK, source="/node-agent/n1"))
    leader = publisher(bus, ObjectCache())
    await leader.begin(await created(bus))
    await leader.publish_everything()
    assert (await health(bus)).deleted


async def test_health_of_a_node_that_is_there_stays(bus: MemoryBus) -> None:
    await bus.publish(encode(SICK, source="/node-agent/n1"))
    cache = ObjectCache()
    cache.apply(NODES, Changed(node()))
    leader = publisher(bus, cache)
    await leader.begin(await created(bus))
    await leader.publish_everything()
    assert await health(bus) == SICK


async def test_an_unforeseen_error_about_a_pod_or_group_ends_no_term(bus: MemoryBus) -> None:
    cache = ObjectCache()
    cache.apply(NODES, Changed(node()))
    recorder = RuleRecorder(cache)

    def evaluate(rule: Publish) -> tuple[Fact, ...]:
        if rule.key.kind != "node":
            raise ValueError(rule.key)
        return recorder.evaluate(rule)

    node_moves = NodeMoves(lambda *_: 0, tuple)
    one = Publisher(
        bus, cache, SystemClock(), instance="one", node_moves=node_moves, evaluate=evaluate
    )
    await one.begin(await created(bus))
    for kind in ("pod", "group"):
        cache.mark(FactKey(kind, "odd"))
    await one.flush()
    assert len(await facts(bus)) == 1, "the node's"
    cache.mark(FactKey("claim", "odd"))
    with pytest.raises(ValueError, match="odd"):
        await one.flush()


def allocated_claim(number: int) -> Object:
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": f"gpu-{number}"}
    name = f"c{number}"
    metadata = {"name": name, "uid": name, "namespace": "ns", "resourceVersion": str(number + 1)}
    status = {"allocation": {"devices": {"results": [result]}}}
    return {"metadata": metadata, "spec": {}, "status": status}


async def test_claims_that_go_at_once_get_a_tombstone_each_however_many(bus: MemoryBus) -> None:
    number = 5_000  # More than are remembered.
    cache = ObjectCache()
    cache.apply(CLAIMS, Listed(tuple(map(allocated_claim, range(number))), number))
    leader = publisher(bus, cache)
    await leader.begin(await created(bus))
    await leader.flush()
    assert len(await facts(bus)) == number

    cache.apply(CLAIMS, Listed((), number + 1))
    await leader.flush()

    deleted = 0
    async with aclosing(bus.read(FACTS_STREAM, subjects=("dray.state.claim.>",))) as messages:  # type: ignore[type-var]
        async for delivered in messages:
            deleted += decode(delivered, ClaimObserved).deleted
            if not delivered.pending:
                break
    assert deleted == number
    assert not cache.claims
    assert len(cache.gone()) < number
    await leader.flush()
    assert not cache.dirty
