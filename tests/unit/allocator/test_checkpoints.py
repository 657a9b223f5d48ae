"""Checkpoints: complete, in parts that fit the bus, and read by those who begin there."""

from msgspec.structs import replace
from tests.unit.allocator.histories.cluster import what_counts

from dray.api.pods import PodClaim
from dray.messages.decisions import (
    AnyRecord,
    Checkpoint,
    CheckpointPart,
    NodeLeft,
    encode_record,
)
from dray_allocator.core.handle import handle
from dray_allocator.cycle.records import checkpoint
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen, RecordSeen, Serve, StopServing
from dray_allocator.values.options import AllocatorOptions


def summed_up(world) -> tuple[Checkpoint, ...]:
    return checkpoint(world.state, world.state.domains["pool"])


def reader(world, records: list[tuple[int, AnyRecord]], facts: int | None = None) -> AllocatorState:
    """A replica that read facts and these records."""
    state = AllocatorState(AllocatorOptions(writer="fresh"))
    for sequence, fact in enumerate(world.facts[:facts], 1):
        handle(state, FactSeen(sequence, fact))
    last = records[-1][0]
    for sequence, record in records:
        handle(state, RecordSeen("pool", 1, sequence, record, more=sequence < last))
    return state


def begun_here(world) -> AllocatorState:
    """A checkpoint is appended, and read by who begins there."""
    first = len(world.logs["pool"]) + 1
    for part in summed_up(world):
        world.append(part)
    return reader(world, list(enumerate(world.logs["pool"][first - 1 :], first)))


def checkpoints_in(world) -> int:
    return sum(isinstance(record, Checkpoint) for record in world.logs["pool"])


def test_an_allocation_that_was_cleared_and_not_voided_counts_for_a_new_reader(world):
    world.full()
    world.commit(world.decisions()["a"])
    world.tick()
    world.clear("claim-a")
    state = begun_here(world)

    assert "claim-a" in dict(state.device_usage.claims())
    assert what_counts(state, "pool") == what_counts(world.state, "pool")


def test_a_new_reader_knows_nodes_to_avoid_nodes_that_left_and_reasons(world):
    world.nodes(world.a_node("n1"), world.a_node("n2"))
    world.submit(world.a_pod("a"))
    decision = world.decisions()["a"]
    world.commit(decision)
    world.tick()
    attempt = decision.claims[0].attempt
    world.clear("claim-a", void=attempt)
    world.submit(world.a_pod("big"), world.ask("9999", "1Gi"))
    leaving = world.a_node("n2", "", leaving="pool", leaving_since=world.revision + 1)
    world.node(leaving)
    world.tick()
    assert any(isinstance(record, NodeLeft) for record in world.logs["pool"])
    state = begun_here(world)

    log = state.domains["pool"].current
    assert log.left.keys() == {"n2"}
    assert list(log.excluded["claim-a"]) == [decision.node]
    assert log.waiting["big"].reasons == world.waits("big")[-1].reasons
    assert what_counts(state, "pool") == what_counts(world.state, "pool")


def test_a_new_reader_knows_an_attempt_of_which_the_pod_was_decided_again_for_another_claim(world):
    """One claim of two is committed, the other is voided and decided alone."""
    world.nodes(world.a_node("n1"), cards=4)
    pod = world.a_pod("p")
    two = (*pod.claims, PodClaim("second", "p-more", "template"))
    world.claim(world.a_claim("p", world.ask()))
    world.claim(replace(world.a_claim("p", world.ask()), uid="claim-more", name="p-more"))
    world.submit(replace(pod, claims=two))
    first = world.decisions()["p"]
    committed, voided = first.claims
    known = world.state.facts.claims[committed.uid]
    world.claim(replace(known, allocation=committed.allocation, decision=committed.attempt))
    world.tick()
    world.clear(voided.uid, void=voided.attempt)
    world.tick()
    assert [one.uid for one in world.decisions()["p"].claims] == [voided.uid]
    world.clear(committed.uid)
    (part,) = summed_up(world)
    state = begun_here(world)

    assert [one.claims[0].uid for one in part.former] == [committed.uid]
    assert {committed.uid, voided.uid} <= dict(state.device_usage.claims()).keys()
    assert what_counts(state, "pool") == what_counts(world.state, "pool")


def test_a_checkpoint_of_many_pods_is_divided_into_records_that_fit_the_bus(make_world):
    options = AllocatorOptions(writer="one", decided_bytes=4000)
    world = make_world(options).open()
    world.nodes(world.a_node("n1"), cards=8)
    for number in range(40):
        world.submit(world.a_pod(f"p{number}"), world.ask("30", "1Gi"))
    for number in range(30):
        world.submit(world.a_pod(f"w{number}"), world.ask("9999", "1Gi"))
    parts = summed_up(world)

    assert len(parts) > 5
    assert max(len(encode_record(part)) for part in parts) < options.decided_bytes + 500
    assert {type(part) for part in parts[1:]} == {CheckpointPart}
    assert sum(len(part.reasons) for part in parts) < 5, "pods share their reasons"
    state = begun_here(world)
    assert what_counts(state, "pool") == what_counts(world.state, "pool")


def test_a_replica_that_has_read_a_part_of_a_checkpoint_decides_nothing(make_world):
    world = make_world(AllocatorOptions(writer="one", decided_bytes=1000)).open().full()
    parts = summed_up(world)
    assert len(parts) > 1
    begun = list(enumerate(parts[:-1], 100))
    state = reader(world, begun)
    handle(state, Serve("pool", 1, begun[-1][0]))

    domain = state.domains["pool"]
    assert not state.ready(domain)
    handle(state, RecordSeen("pool", 1, 100 + len(begun), parts[-1]))
    assert state.ready(domain)


def test_a_checkpoint_that_its_writer_did_not_finish_is_ignored(make_world):
    world = make_world(AllocatorOptions(writer="one", decided_bytes=1000)).open().full()
    known = what_counts(world.state, "pool")
    first, *rest = summed_up(world)
    other = replace(world.waits("c")[-1], writer="another")
    log = [first, other, *rest]
    state = reader(world, list(enumerate(log, 100)))
    assert not state.domains["pool"].current.is_whole
    assert not state.domains["pool"].read

    again = [*log, *summed_up(world)]
    state = reader(world, list(enumerate(again, 100)))
    assert what_counts(state, "pool") | {"sequences": 0} == known | {"sequences": 0}


def test_a_replica_that_was_paused_across_two_trims_begins_with_the_checkpoint(make_world):
    world = make_world(AllocatorOptions(writer="one")).open().full()
    paused = reader(world, list(enumerate(world.logs["pool"], 1)))
    handle(paused, Serve("pool", 1, len(world.logs["pool"])))
    assert paused.ready(paused.domains["pool"])
    for uid in ("a", "b"):
        world.commit(world.decisions()[uid])
        world.tick()
        for part in summed_up(world):
            world.append(part)
    log = world.logs["pool"]
    kept = max(at for at, record in enumerate(log, 1) if isinstance(record, Checkpoint))
    for sequence, fact in enumerate(world.facts, 1):
        handle(paused, FactSeen(sequence, fact, more=True))

    effects = handle(paused, RecordSeen("pool", 1, kept, log[kept - 1]))
    assert effects == [StopServing("pool")]
    assert not paused.domains["pool"].serving
    for sequence, record in enumerate(log[kept:], kept + 1):
        handle(paused, RecordSeen("pool", 1, sequence, record))
    assert what_counts(paused, "pool") == what_counts(world.state, "pool")


def test_records_that_are_missing_without_a_checkpoint_stop_the_replica(world):
    world.full()
    log = list(enumerate(world.logs["pool"], 1))
    state = reader(world, [log[0], *log[2:]])

    assert not state.domains["pool"].read
    assert not state.complete(state.domains["pool"])


def test_a_checkpoint_is_not_written_again_before_a_share_of_the_pods_has_changed(make_world):
    options = AllocatorOptions(writer="one", checkpoint_interval_s=5)
    world = make_world(options).open()
    world.nodes(*(world.a_node(f"n{number}") for number in range(9)))
    for number in range(40):
        world.submit(world.a_pod(f"p{number}"), world.ask("30", "1Gi"))
    assert len(world.state.domains["pool"].current.pods) == 40
    world.tick(6)
    written = checkpoints_in(world)
    for number in range(3):
        assert checkpoints_in(world) == written
        world.submit(world.a_pod(f"w{number}"), world.ask("9999", "1Gi"))
        world.tick(6)
    assert checkpoints_in(world) == written + 1
