"""Allocators on a real bus: serving, taking over, and being wrong about serving."""

import asyncio

from dray.bus.topology import COMMANDS_STREAM
from dray.messages.decisions import Decided, Waiting, log_stream


async def test_a_pod_is_decided_over_the_bus(cluster, eventually):
    one = await cluster.replica("one")
    await cluster.node("n1")
    await cluster.submit("p")

    async def decided() -> bool:
        return [decision.node for decision in await cluster.decisions()] == ["n1"]

    await eventually(decided)
    assert one.shell.problem is None


async def test_two_that_both_believe_they_serve_never_sell_a_card_twice(
    cluster, eventually, devices_of
):
    one, two = await cluster.replica("one"), await cluster.replica("two")
    one.wire.believes = two.wire.believes = True
    await eventually(lambda: one.serves and two.serves)
    one.wire.open.clear()
    two.wire.open.clear()

    await cluster.node("n1", cards=1)
    await cluster.submit("p")
    await cluster.submit("q")
    await eventually(lambda: one.wire.held > 0 and two.wire.held > 0)
    two.wire.open.set()

    async def sold() -> bool:
        return len(await cluster.decisions()) == 1

    await eventually(sold)
    one.wire.open.set()
    await eventually(lambda: one.conflicts > 0)
    assert len(await cluster.decisions()) == 1

    await cluster.node("n2", cards=3)
    for uid in ("r", "s"):
        await cluster.submit(uid)

    async def all_placed() -> bool:
        return len(await cluster.decisions()) == 4

    await eventually(all_placed)
    given = devices_of(await cluster.decisions())
    assert len(set(given)) == len(given)
    await eventually(lambda: not _outstanding(one) and not _outstanding(two))
    assert dict(one.state.device_usage.claims()) == dict(two.state.device_usage.claims())


def _outstanding(replica) -> bool:
    domain = replica.state.domains["pool"]
    return bool(domain.appended) or domain.confirmed.sequence != domain.current.sequence


async def test_two_split_brain_allocators_under_load_place_every_pod_once(
    cluster, eventually, devices_of
):
    one, two = await cluster.replica("one"), await cluster.replica("two")
    one.wire.believes = two.wire.believes = True
    for n in range(4):
        await cluster.node(f"n{n}", cards=8)
    await eventually(lambda: one.serves and two.serves)
    await asyncio.gather(*(cluster.submit(f"p{n}") for n in range(40)))

    async def full() -> bool:
        return len(await cluster.decisions()) == 32

    await eventually(full)
    given = devices_of(await cluster.decisions())
    assert len(set(given)) == 32

    async def is_reported() -> bool:
        records = await cluster.log()
        waits = [one for r in records if isinstance(r, Waiting) for one in r.by_pod()]
        return len({one.pod_uid for one in waits}) >= 8

    await eventually(is_reported)


async def test_a_standby_takes_over_and_knows_what_was_decided(cluster, eventually, devices_of):
    one = await cluster.replica("one")
    await cluster.node("n1", cards=2)
    await eventually(lambda: one.serves)
    await cluster.submit("p")

    async def first() -> bool:
        return len(await cluster.decisions()) == 1

    await eventually(first)
    two = await cluster.replica("two")
    await eventually(lambda: two.state.facts.synced)
    assert not two.serves
    await one.die()
    await eventually(lambda: two.serves)
    await cluster.submit("q")

    async def second() -> bool:
        return len(await cluster.decisions()) == 2

    await eventually(second)
    assert len(set(devices_of(await cluster.decisions()))) == 2
    writers = [r.writer for r in await cluster.log() if isinstance(r, Decided)]
    assert writers == ["one", "two"]


async def test_an_orderly_stop_hands_over_at_once(cluster, eventually):
    one = await cluster.replica("one")
    await eventually(lambda: one.serves)
    two = await cluster.replica("two")
    await one.stop()
    await eventually(lambda: two.serves)


async def test_a_lost_log_stops_decisions_until_a_new_epoch(cluster, eventually):
    one = await cluster.replica("one")
    await cluster.node("n1")
    await eventually(lambda: one.serves)
    await cluster.bus.delete_stream(log_stream("pool", 1))
    await cluster.submit("p")
    await eventually(lambda: one.state.domains["pool"].lost)
    await cluster.open_log(2)

    async def decided() -> bool:
        return len(await cluster.decisions(epoch=2)) == 1

    await eventually(decided)
    (decision,) = await cluster.decisions(epoch=2)
    assert decision.claims[0].attempt == 2_000_001


async def test_an_uncommitted_decision_becomes_a_command(cluster, eventually):
    one = await cluster.replica("one")
    await cluster.node("n1")
    await eventually(lambda: one.serves)
    await cluster.submit("p")

    async def decided() -> bool:
        return len(await cluster.decisions()) == 1

    await eventually(decided)
    await cluster.tick(31)

    async def asked() -> bool:
        state = await cluster.bus.state(COMMANDS_STREAM)
        return state is not None and state.last_sequence == 1

    await eventually(asked)
