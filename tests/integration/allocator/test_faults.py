"""What a replica does while the bus is away, answers are lost, or messages are strange."""

import asyncio

import pytest
from tests.integration.allocator.cluster import POOL, until

from dray.api.errors import PermanentError
from dray.api.pods import Policy, Pool
from dray.bus.ports import BusUnavailableError
from dray.bus.topology import FACTS_STREAM, log_spec
from dray.messages.base import Outgoing, subject_prefix
from dray.messages.decisions import Checkpoint, Decided, decode_record, log_stream
from dray.messages.facts import (
    CheckpointPosition,
    DomainObserved,
    InventoryObserved,
    PolicyObserved,
    PoolObserved,
)
from dray_allocator.service import decision_logs, replica


async def _decided(cluster, count: int, epoch: int = 1, pod: str = "") -> None:
    """``pod``: count the decisions of this one alone."""

    async def found() -> int:
        return sum(pod in ("", one.pod_uid) for one in await cluster.decisions(epoch))

    async with asyncio.timeout(60):
        while await found() != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_an_append_whose_answer_is_lost_is_not_decided_twice(memory_cluster, eventually):
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1", cards=2)
    await eventually(lambda: one.serves)
    one.bus.fail_next("append", BusUnavailableError("no answer"), after=True)
    await memory_cluster.submit("p")
    await _decided(memory_cluster, 1)
    await eventually(lambda: one.serves and not one.state.domains["pool"].appended)
    await memory_cluster.submit("q")
    await _decided(memory_cluster, 2)
    assert [one.pod_uid for one in await memory_cluster.decisions()] == ["p", "q"]


async def test_pods_whose_facts_are_at_hand_together_are_decided_in_one_record(
    memory_cluster, eventually
):
    # FragmentationAware ends a record whenever it has learned something.
    policy = Policy("policy", "u", placement="CompactFirst")
    await memory_cluster.publish(
        PolicyObserved(revision=1, policy=policy),
        PoolObserved(revision=2, pool=Pool("pool", "u", template="policy")),
    )
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1", cards=5)
    await eventually(lambda: one.serves)
    for name in "pqrst":
        await memory_cluster.submit(name)
    await _decided(memory_cluster, 5)
    records = [record for record in await memory_cluster.log() if isinstance(record, Decided)]
    assert [len(record.pods) for record in records] == [5]


@pytest.mark.parametrize(
    "error",
    [BusUnavailableError("not sent"), PermanentError("resource limits exceeded for account")],
    ids=["never arrived", "refused by a bus whose account is full"],
)
async def test_a_record_that_could_not_be_appended_is_decided_again(
    memory_cluster, eventually, error
):
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1")
    await eventually(lambda: one.serves)
    one.bus.fail_next("append", error)
    await memory_cluster.submit("p")
    await _decided(memory_cluster, 1)


async def test_what_was_built_on_a_refused_record_waits_with_it(
    memory_cluster, eventually, monkeypatch
):
    """It fails, too, and would be decided again at once, and refused at once."""
    monkeypatch.setattr(decision_logs, "_REFUSED_S", 3600.0)
    monkeypatch.setattr(replica, "_WIND_UP_S", 0.0)
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1")
    await eventually(lambda: one.serves)
    term = one.state.domains[POOL].term
    one.bus.fail_next("append", PermanentError("resource limits exceeded for account"))
    await memory_cluster.submit("p")
    await eventually(lambda: not one.bus._faults["append"])
    await memory_cluster.submit("q")
    await eventually(lambda: one.conflicts > 0)
    assert one.state.domains[POOL].term == term


async def test_a_replica_that_reads_its_log_no_more_ends(memory_cluster, eventually, monkeypatch):
    """It would hold its lease, and decide nothing."""

    def fail(*_: object) -> None:
        raise KeyError("nobody foresaw that")

    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1")
    await eventually(lambda: one.serves)
    monkeypatch.setattr(one.shell._logs._own, "record_of", fail)
    await memory_cluster.submit("p")
    await eventually(lambda: one._task.done())
    assert "nobody foresaw that" in repr(one._task.exception())


async def test_nothing_is_decided_while_the_bus_is_away_and_all_of_it_after(
    memory_cluster, eventually
):
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1")
    await eventually(lambda: one.serves)
    one.bus.disconnect()
    await eventually(lambda: not one.serves)
    await memory_cluster.submit("p")
    assert not await memory_cluster.decisions()
    one.bus.reconnect()
    await _decided(memory_cluster, 1)


async def test_an_unreadable_inventory_affects_only_its_node(memory_cluster, eventually):
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1")
    await eventually(lambda: one.serves)
    subject = f"{subject_prefix(InventoryObserved)}.n1"
    await memory_cluster.bus.publish(Outgoing(subject, b'{"revision": "nonsense"}'))
    await memory_cluster.submit("p")
    await _decided(memory_cluster, 1)
    assert one.shell.problem is None


async def test_a_fact_of_an_unknown_type_is_passed_over(memory_cluster, eventually):
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1")
    await memory_cluster.bus.publish(Outgoing("dray.state.future.v1.x", b"{}"))
    await memory_cluster.submit("p")
    await _decided(memory_cluster, 1)
    assert one.shell.problem is None


async def test_pods_are_decided_where_the_last_fact_at_hand_is_of_an_unknown_type(
    memory_cluster, eventually
):
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1")
    await eventually(lambda: one.serves)
    await memory_cluster.submit("p")
    await memory_cluster.bus.publish(Outgoing("dray.state.later.v1.x", b"{}"))
    await _decided(memory_cluster, 1)


async def test_facts_that_were_lost_are_read_again_with_a_new_epoch(memory_cluster, eventually):
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1")
    await memory_cluster.submit("p")
    await _decided(memory_cluster, 1)
    await memory_cluster.bus.delete_stream(FACTS_STREAM)
    await eventually(lambda: not one.state.facts.synced)
    assert [uid for uid, _ in one.state.device_usage.claims()] == ["c-p"]
    await memory_cluster.open(epoch=2)
    await memory_cluster.node("n1")
    await memory_cluster.submit("q")
    await _decided(memory_cluster, 1, epoch=2)


async def test_a_log_that_lost_its_newest_records_is_read_again(memory_cluster, eventually):
    """Nobody but this replica had read them, so no new epoch comes."""
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1", cards=2)
    await memory_cluster.submit("p")
    await _decided(memory_cluster, 1)
    await eventually(lambda: one.state.domains["pool"].confirmed.sequence > 1)
    memory_cluster.bus.server.named(log_stream("pool", 1)).lose_tail(1)
    await _decided(memory_cluster, 1)
    await memory_cluster.submit("q")
    await _decided(memory_cluster, 2)
    assert [one.pod_uid for one in await memory_cluster.decisions()] == ["p", "q"]


async def test_a_log_created_again_in_the_same_epoch_is_not_trusted(memory_cluster, eventually):
    one = await memory_cluster.replica("one")
    await eventually(lambda: one.serves)
    await memory_cluster.bus.delete_stream(log_stream("pool", 1))
    await eventually(lambda: one.state.domains["pool"].lost)
    await memory_cluster.bus.ensure(log_spec("pool", 1))
    await asyncio.sleep(0.2)
    assert one.state.domains["pool"].lost


async def test_a_replica_that_was_paused_across_two_trims_goes_on_from_the_checkpoint(
    memory_cluster, eventually, devices_of
):
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1", cards=4)
    await memory_cluster.submit("p")
    await _decided(memory_cluster, 1)
    await eventually(lambda: one.serves)
    one.bus.disconnect()
    two = await memory_cluster.replica("two")
    await eventually(lambda: two.serves)
    decided = await memory_cluster.decisions()
    for pod in ("q", "r"):
        await memory_cluster.submit(pod)
        await _decided(memory_cluster, 1, pod=pod)
        decided += [one for one in await memory_cluster.decisions() if one.pod_uid == pod]
        start = await _checkpoint(memory_cluster)
        await memory_cluster.bus.purge(log_stream("pool", 1), start)
    begun = one.state.domains["pool"]
    one.bus.reconnect()
    last = two.state.domains["pool"]
    await eventually(lambda: one.state.domains["pool"].confirmed == last.confirmed)
    assert one.state.domains["pool"] is not begun
    await two.stop()
    await eventually(lambda: one.serves)
    await memory_cluster.submit("s")
    await _decided(memory_cluster, 1, pod="s")
    decided += [one for one in await memory_cluster.decisions() if one.pod_uid == "s"]
    assert len(set(devices_of(decided))) == 4


async def test_a_new_replica_begins_where_the_fact_says(memory_cluster, eventually):
    one = await memory_cluster.replica("one")
    await memory_cluster.node("n1", cards=2)
    await memory_cluster.submit("p")
    await _decided(memory_cluster, 1)
    start = await _checkpoint(memory_cluster)
    begins = CheckpointPosition(sequence=start, now_unix_s=0.0)
    named = DomainObserved(revision=2, domain="pool", epoch=1, checkpoints=(begins,))
    await memory_cluster.publish(named)
    two = await memory_cluster.replica("two")
    first = []
    record_of = two.shell._logs._own.record_of
    two.shell._logs._own.record_of = lambda domain, epoch, delivered: (
        first.append(delivered.sequence) or record_of(domain, epoch, delivered)
    )
    await eventually(lambda: "pool" in two.state.domains and two.state.domains["pool"].read)
    assert first[0] == start
    assert two.state.domains["pool"].confirmed == one.state.domains["pool"].confirmed


async def _checkpoint(cluster) -> int:
    """Let time pass until a checkpoint follows the last decision; return its sequence."""
    found = 0

    async def is_written() -> bool:
        nonlocal found
        found = 0
        await cluster.tick(60.0)
        for delivered in cluster.bus.server.named(log_stream("pool", 1)).after(1, ()):
            match decode_record(delivered.payload):
                case Checkpoint():
                    found = delivered.sequence
                case Decided():
                    found = 0
        return found > 0

    await until(is_written)
    return found
