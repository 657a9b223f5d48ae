"""How a replica takes over, and what becomes of logs, epochs and facts that are lost."""

import gc
from weakref import ref

from msgspec.structs import replace

from dray.api.claims import last_attempt_before
from dray.messages.decisions import (
    Checkpoint,
    Decided,
    Released,
    Waiting,
    decode_record,
    encode_record,
)
from dray.messages.facts import CheckpointPosition, ClaimObserved, DomainObserved, PodObserved
from dray_allocator.core.handle import handle, recompute
from dray_allocator.state.domain import LogFold
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    Append,
    AppendFailed,
    FactSeen,
    FactsLost,
    Follow,
    LogLost,
    LogShortened,
    RecordSeen,
    Serve,
    StandBy,
)
from dray_allocator.values.options import AllocatorOptions


def _replica(world, name: str = "two", facts: int | None = None) -> AllocatorState:
    """Another replica that folded the logs and the first ``facts`` facts."""
    state = AllocatorState(AllocatorOptions(writer=name))
    for sequence, fact in enumerate(world.facts[:facts], 1):
        handle(state, FactSeen(sequence, fact))
    for pool, log in world.logs.items():
        for sequence, record in enumerate(log, 1):
            handle(state, RecordSeen(pool, 1, sequence, record))
    return state


def test_a_replica_takes_over_with_what_was_decided_before(world):
    world.full()
    other = _replica(world)
    handle(world.state, StandBy("pool"))
    assert handle(other, Serve("pool", 1, len(world.logs["pool"]))) == []
    gone = world.state.facts.claims["claim-a"]
    world.claim(gone, deleted=True)
    effects = handle(other, FactSeen(len(world.facts), world.facts[-1]))
    kinds = [type(effect.record).__name__ for effect in effects if isinstance(effect, Append)]
    assert kinds == ["Released", "Decided"]


def test_nobody_decides_with_fewer_facts_than_the_log_was_written_with(world):
    world.full()
    behind = _replica(world, facts=len(world.facts) - 1)
    assert handle(behind, Serve("pool", 1, len(world.logs["pool"]))) == []
    domain = behind.domains["pool"]
    assert not behind.ready(domain)
    handle(behind, FactSeen(len(world.facts), world.facts[-1]))
    assert behind.ready(domain)


def test_nobody_decides_before_the_log_was_folded_to_its_end(world):
    world.full()
    other = _replica(world)
    handle(other, Serve("pool", 1, len(world.logs["pool"]) + 1))
    assert not other.ready(other.domains["pool"])


def test_after_a_failed_append_the_tentative_state_is_forgotten(world):
    world.nodes(world.a_node("n1"))
    world.claim(world.a_claim("p", world.ask()))
    fact = PodObserved(revision=world.next(), pod=world.a_pod("p"))
    world.facts.append(fact)
    (append,) = handle(world.state, FactSeen(len(world.facts), fact))
    assert isinstance(append, Append)
    device = append.record.pods[0].claims[0].allocation.devices[0].id
    assert world.state.device_usage.of(device).shares == 1

    assert handle(world.state, AppendFailed("pool", 1, "stale")) == []
    assert world.state.device_usage.of(device).shares == 0
    (again,) = handle(world.state, Serve("pool", 1, len(world.logs["pool"])))
    assert replace(again, term=append.term) == append


def test_pipelined_appends_predict_their_sequences_and_are_confirmed_by_reading(world):
    world.nodes(world.a_node("n1"), cards=4)
    appends = []
    for uid in ("a", "b", "c"):
        claim = world.a_claim(uid, world.ask())
        world.claim(claim)
        fact = PodObserved(revision=world.next(), pod=world.a_pod(uid))
        world.facts.append(fact)
        appends += handle(world.state, FactSeen(len(world.facts), fact))
    last = len(world.logs["pool"])
    assert [append.expected_last for append in appends] == [last, last + 1, last + 2]
    domain = world.state.domains["pool"]
    for append in appends:
        record = decode_record(encode_record(append.record))
        handle(world.state, RecordSeen("pool", 1, append.expected_last + 1, record))
    assert not domain.appended
    assert domain.confirmed == domain.current


def test_messages_that_arrive_twice_change_nothing(world):
    world.full()
    before = (list(world.state.device_usage.claims()), world.state.facts.position)
    for sequence, fact in enumerate(world.facts, 1):
        assert handle(world.state, FactSeen(sequence, fact)) == []
    for sequence, record in enumerate(world.logs["pool"], 1):
        assert handle(world.state, RecordSeen("pool", 1, sequence, record)) == []
    assert (list(world.state.device_usage.claims()), world.state.facts.position) == before


def test_a_new_epoch_starts_from_what_the_claims_say(world):
    world.full()
    world.commit(world.decisions()["a"])
    held = world.state.facts.claims["claim-b"]
    world.claim(replace(held, void=last_attempt_before(2)))
    effects = world.see(DomainObserved(revision=2, domain="pool", epoch=2))
    assert Follow("pool", 2) in effects
    uses = dict(world.state.device_usage.claims())
    assert list(uses) == ["claim-a"]


def test_after_the_facts_were_lost_nothing_is_decided_until_they_are_complete(world):
    world.full()
    handle(world.state, FactsLost())
    assert not world.state.ready(world.state.domains["pool"])
    assert [uid for uid, _ in world.state.device_usage.claims()] == ["claim-a", "claim-b"]


def test_devices_that_went_with_the_facts_are_held_by_nothing(world):
    world.full()
    fleet = ref(world.state.published)
    handle(world.state, FactsLost())
    gc.collect()
    assert fleet() is None


def test_facts_created_again_must_name_the_epoch_before_anything_is_decided_or_reported(world):
    """Until then the log may hold claims that went with the facts."""
    world.full()
    facts = [fact for fact in world.facts if not isinstance(fact, DomainObserved)]
    handle(world.state, FactsLost())
    domain = world.state.domains["pool"]
    late = 1 + domain.current.facts_sequence
    for sequence, fact in enumerate(facts, late):
        handle(world.state, FactSeen(sequence, fact))
    assert world.state.facts.synced
    assert not world.state.complete(domain)
    named = DomainObserved(revision=1, domain="pool", epoch=1)
    handle(world.state, FactSeen(late + len(facts), named))
    assert world.state.complete(domain)


def test_a_reader_may_start_at_a_checkpoint(make_world):
    world = make_world(AllocatorOptions(checkpoint_interval_s=60)).open().full()
    world.commit(world.decisions()["a"])
    world.tick(61, most_step_s=61)
    log = world.logs["pool"]
    assert isinstance(log[-1], Checkpoint)
    state = AllocatorState()
    for sequence, fact in enumerate(world.facts, 1):
        handle(state, FactSeen(sequence, fact))
    handle(state, RecordSeen("pool", 1, len(log), log[-1]))
    assert dict(state.device_usage.claims()) == dict(world.state.device_usage.claims())
    assert state.domains["pool"].current.pods == world.state.domains["pool"].current.pods


def test_a_reader_that_meets_no_checkpoint_where_one_was_published_reads_from_the_first_record(
    world,
):
    """The log lost its newest records, the checkpoint among them, and has grown again."""
    world.full()
    log = world.logs["pool"]
    last = len(log)
    assert not isinstance(log[-1], Checkpoint)
    other = AllocatorState()
    for sequence, fact in enumerate(world.facts, 1):
        handle(other, FactSeen(sequence, fact))
    published = (CheckpointPosition(sequence=last, now_unix_s=0.0),)
    named = DomainObserved(revision=2, domain="pool", epoch=1, checkpoints=published)
    handle(other, FactSeen(len(world.facts) + 1, named))
    assert handle(other, RecordSeen("pool", 1, last, log[-1])) == [Follow("pool", 1)]
    assert other.domains["pool"].confirmed == LogFold()
    for sequence, record in enumerate(log, 1):
        assert handle(other, RecordSeen("pool", 1, sequence, record)) == []
    assert other.domains["pool"].read
    assert other.domains["pool"].current == world.state.domains["pool"].confirmed


def test_every_record_can_be_computed_again_from_what_it_was_based_on(world):
    world.full()
    world.commit(world.decisions()["a"])
    world.tick()
    world.claim(world.state.facts.claims["claim-a"], deleted=True)
    state = AllocatorState()
    folded, again = 0, []
    for sequence, record in enumerate(world.logs["pool"], 1):
        while folded < record.facts_sequence:
            folded += 1
            handle(state, FactSeen(folded, world.facts[folded - 1]))
        if "pool" in state.domains:
            assert encode_record(recompute(state, record)) == encode_record(record)
            again.append(type(record))
        handle(state, RecordSeen("pool", 1, sequence, record))
    assert {Decided, Released, Waiting} <= set(again)


def test_a_standby_keeps_no_queue_and_begins_with_everybody(world):
    world.nodes(world.a_node("n1"))
    handle(world.state, StandBy("pool"))
    world.submit(world.a_pod("p"))
    assert not world.state.domains["pool"].queue.active
    world.serve()
    assert "p" in world.decisions()


def test_nothing_is_decided_before_every_log_was_read_once(world):
    """A node may come from a pool whose log alone knows what is still in use on it."""
    world.full()
    other = _replica(world)
    handle(other, Serve("pool", 1, len(world.logs["pool"])))
    assert other.ready(other.domains["pool"])
    further = DomainObserved(revision=1, domain="left", epoch=1)
    handle(other, FactSeen(len(world.facts) + 1, further))
    assert not other.ready(other.domains["pool"])
    opened = world.logs["pool"][0]
    handle(other, RecordSeen("left", 1, 1, opened, more=True))
    assert not other.ready(other.domains["pool"])
    handle(other, RecordSeen("left", 1, 2, opened))
    assert other.ready(other.domains["pool"])


def test_a_log_that_is_lost_keeps_no_other_pool_waiting(world):
    world.full()
    other = _replica(world)
    handle(other, Serve("pool", 1, len(world.logs["pool"])))
    further = DomainObserved(revision=1, domain="left", epoch=1)
    handle(other, FactSeen(len(world.facts) + 1, further))
    handle(other, LogLost("left", 1))
    assert other.ready(other.domains["pool"])


def test_the_rest_of_a_truncated_log_is_used(world):
    world.full()
    other = _replica(world)
    handle(other, LogLost("pool", 1))
    handle(other, LogShortened("pool", 1))
    assert not other.domains["pool"].current.claims
    left = LogFold()
    for sequence, record in enumerate(world.logs["pool"][:-1], 1):
        handle(other, RecordSeen("pool", 1, sequence, record))
        left.fold(sequence, record)
    assert other.domains["pool"].current == left
    assert left.claims


def test_a_lower_epoch_is_followed_also_where_the_log_s_loss_is_noticed_last(world):
    """Else the replica would wait for a name that nobody gives the lost log again."""
    world.full()
    known = DomainObserved(revision=3, domain="pool", epoch=3)
    world.see(known)
    handle(world.state, FactsLost())
    for sequence, epoch in ((1, 1), (2, 2)):
        named = DomainObserved(revision=epoch, domain="pool", epoch=epoch)
        assert handle(world.state, FactSeen(sequence, named)) == []
    assert handle(world.state, LogLost("pool", 3)) == [Follow("pool", 2)]
    domain = world.state.domains["pool"]
    assert (domain.epoch, domain.lost, domain.unnamed) == (2, False, False)


def test_a_log_that_is_lost_before_its_successor_is_named_waits_for_the_name(world):
    world.full()
    handle(world.state, FactsLost())
    assert handle(world.state, LogLost("pool", 1)) == []
    named = DomainObserved(revision=2, domain="pool", epoch=2)
    assert handle(world.state, FactSeen(1, named)) == [Follow("pool", 2)]


def test_a_pool_created_again_after_facts_and_log_were_lost_starts_empty(world):
    """Its epochs may begin at 1 again: nothing remembers the ones before."""
    world.full()
    handle(world.state, LogLost("pool", 1))
    handle(world.state, FactsLost())
    named = DomainObserved(revision=1, domain="pool", epoch=1)
    assert handle(world.state, FactSeen(1, named)) == [Follow("pool", 1)]
    domain = world.state.domains["pool"]
    assert not domain.lost
    assert not domain.current.claims


def test_a_pod_whose_release_was_not_written_is_held_again(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"))
    gone = ClaimObserved(
        revision=world.next(), claim=world.state.facts.claims["claim-p"], deleted=True
    )
    (append,) = handle(world.state, FactSeen(len(world.facts) + 1, gone))
    assert isinstance(append.record, Released)
    assert "p" not in world.state.assumed_pods.pods()
    handle(world.state, AppendFailed("pool", 1, "stale"))
    assert "p" in world.state.assumed_pods.pods()
