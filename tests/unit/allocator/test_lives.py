"""How waiting, reservations and take-overs go on."""

from msgspec.structs import replace

from dray.domain.claims import first_attempt, last_attempt_before
from dray.messages.decisions import (
    Checkpoint,
    Decided,
    NodeLeft,
    Released,
    Waiting,
    decode_record,
    encode_record,
)
from dray.messages.facts import DomainObserved, PodObserved, Tick
from dray_allocator import deciding
from dray_allocator.events import (
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
from dray_allocator.handle import handle, reasons, recompute
from dray_allocator.log.fold import LogFold
from dray_allocator.placement.lanes import find_with
from dray_allocator.rules import Rules
from dray_allocator.state import AllocatorState


def _full(world):
    """Two pods fill the card, a third waits."""
    world.nodes(world.a_node("n1"))
    for uid in ("a", "b", "c"):
        world.submit(world.a_pod(uid))
    return world


def test_a_waiting_pod_is_placed_when_another_is_deleted(world):
    _full(world)
    for uid in ("a", "b"):
        world.commit(world.decisions()[uid])
    world.tick()
    assert "c" not in world.decisions()
    assert reasons(world.state, "c") == world.waits("c")[-1].reasons
    world.claim(world.state.facts.claims["claim-a"], deleted=True)
    assert world.decisions()["c"].node == "n1"
    assert reasons(world.state, "c") == ()


def test_reasons_are_told_again_only_when_they_change(world):
    _full(world)
    for _ in range(3):
        world.tick()
    assert len(world.waits("c")) == 1
    world.nodes(world.a_node("n2", unschedulable=True))
    world.tick()
    assert len(world.waits("c")) == 2


def test_of_the_pods_that_wait_only_those_are_tried_that_could_fit_now(make_world, monkeypatch):
    world = make_world().open().nodes(make_world.a_node("n1"), cards=2)
    world.submit(world.a_pod("holder"), world.ask("312", "40Gi"))
    world.submit(world.a_pod("other"), world.ask("312", "40Gi"))
    for number in range(5):
        world.submit(world.a_pod(f"small-{number}"), world.ask("10", "30Gi"))
        world.submit(world.a_pod(f"many-{number}"), world.ask("10", "1Gi", count=2))
    tried = []

    def noted(state, domain, want, effort):
        tried.append(want.pod.uid)
        return find_with(state, domain, want, effort)

    monkeypatch.setattr(deciding, "find_with", noted)
    world.claim(world.state.facts.claims["claim-holder"], deleted=True)
    assert list(world.decisions()) == ["holder", "other", "small-0"]
    assert tried == ["small-0", "small-1"]


def test_changed_counts_alone_are_told_after_a_while(make_world):
    world = _full(make_world(Rules(waiting_repeat_s=10)).open())
    world.nodes(world.a_node("n2", unschedulable=True))
    world.tick()
    told = len(world.waits("c"))
    world.nodes(world.a_node("n3", unschedulable=True))
    world.tick()
    assert len(world.waits("c")) == told
    world.tick(11)
    assert world.waits("c")[-1].reasons[-1].of == 3


def test_waiting_pods_are_tried_by_priority_then_age(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("holder"), world.ask("312", "40Gi"))
    world.submit(world.a_pod("young", created_unix_s=2.0), world.ask("200", "30Gi"))
    world.submit(world.a_pod("old", created_unix_s=1.0), world.ask("200", "30Gi"))
    world.submit(world.a_pod("dear", created_unix_s=3.0, priority=5), world.ask("200", "30Gi"))
    world.claim(world.state.facts.claims["claim-holder"], deleted=True)
    assert list(world.decisions()) == ["holder", "dear"]
    world.claim(world.state.facts.claims["claim-dear"], deleted=True)
    assert list(world.decisions()) == ["holder", "dear", "old"]


def test_an_uncommitted_decision_is_voided_by_asking_again_and_again(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"))
    world.tick(29)
    assert not world.sent()
    world.tick(1)
    world.tick(1)
    assert len(world.sent()) == 1
    world.tick(5)
    first, second = (send.command for send in world.sent())
    assert (first.attempt, first.claim_uid) == (first_attempt(1), "claim-p")
    assert second.key() != first.key()
    assert world.released() == []
    world.clear("claim-p", void=first.attempt)
    assert world.released() == [("claim-p", "voided", "")]
    assert world.decisions()["p"].claims[0].attempt == first.attempt + 1


def test_a_pod_that_is_gone_gives_back_only_after_its_claim_says_so(world):
    _full(world)
    world.see(PodObserved(revision=world.next(), pod=world.a_pod("a"), deleted=True))
    assert [send.command.reason for send in world.sent()] == ["the pod is gone"]
    assert "c" not in world.decisions()
    world.claim(world.state.facts.claims["claim-a"], deleted=True)
    assert world.released() == [("claim-a", "deleted", "")]
    assert "c" in world.decisions()


def test_a_withdrawn_allocation_is_decided_again_elsewhere(world):
    world.nodes(world.a_node("n1"), world.a_node("n2"))
    world.submit(world.a_pod("p"))
    first = world.decisions()["p"]
    world.commit(first)
    world.tick()
    world.clear("claim-p", void=first.claims[0].attempt)
    assert world.released()[-1] == ("claim-p", "withdrawn", first.node)
    second = world.decisions()["p"]
    assert second.node != first.node
    assert second.claims[0].attempt > first.claims[0].attempt


def test_a_pod_that_waits_for_its_devices_is_committed_and_keeps_what_it_has(world):
    """It is not bound for minutes, and nobody voids its attempt or gives its room to others."""
    _full(world)
    for name in ("a", "b"):
        world.commit(world.decisions()[name])
    world.tick(31)
    world.tick(600)
    assert not world.sent()
    assert {why for _, why, _ in world.released()} == {"committed"}
    assert all(world.state.holds.has(name) for name in ("a", "b"))
    assert "c" not in world.decisions()


def test_an_excluded_node_is_tried_again_after_a_while(make_world):
    world = make_world(Rules(exclusion_s=300)).open().nodes(make_world.a_node("n1"))
    world.submit(world.a_pod("p"))
    first = world.decisions()["p"]
    world.commit(first)
    world.tick()
    world.clear("claim-p", void=first.claims[0].attempt)
    world.tick(299)
    assert world.waits("p")[-1].reasons[-1].what == "not withdrawn from lately"
    world.tick(1)
    assert world.decisions()["p"].claims[0].attempt > first.claims[0].attempt


def test_a_cleared_allocation_still_counts_until_it_is_void(world):
    _full(world)
    first = world.decisions()["a"]
    world.commit(first)
    world.tick()
    world.clear("claim-a")
    assert world.sent()[-1].command.reason == "the allocation was cleared"
    assert "c" not in world.decisions()
    world.clear("claim-a", void=first.claims[0].attempt)
    assert "c" in world.decisions()


def test_an_execution_the_log_does_not_know_is_voided_before_a_decision(world):
    world.nodes(world.a_node("n1"))
    begun = world.a_claim("p", world.ask(), decision=7)
    world.claim(begun)
    world.see(PodObserved(revision=world.next(), pod=world.a_pod("p")))
    assert [send.command.attempt for send in world.sent()] == [7]
    assert not world.decisions()
    world.claim(replace(begun, void=7))
    assert world.decisions()["p"].claims[0].attempt == first_attempt(1)


def test_a_node_leaves_the_domain_once_nothing_is_in_flight_on_it(make_world):
    world = make_world(pools=("pool", "other")).open().nodes(make_world.a_node("n1"))
    world.submit(world.a_pod("p"))
    decision = world.decisions()["p"]
    leaving = world.a_node("n1", pool="", leaving="pool", leaving_since=world.revision + 1)
    world.node(leaving)
    assert world.sent()[-1].command.reason == "node n1 left the domain"
    assert not [r for r in world.logs["pool"] if isinstance(r, NodeLeft)]
    world.commit(decision)
    world.tick()
    assert not [r for r in world.logs["pool"] if isinstance(r, NodeLeft)]
    world.node(leaving, counted=("p",))
    (record,) = [r for r in world.logs["pool"] if isinstance(r, NodeLeft)]
    assert (record.node, record.node_revision) == ("n1", world.revision)
    world.node(world.a_node("n1", pool="other"))
    world.submit(world.a_pod("q", pool="other"), world.ask("300", "1Gi"))
    assert "q" not in world.decisions()
    world.submit(world.a_pod("r", pool="other"))
    assert world.decisions()["r"].node == "n1"
    assert not world.oversold()


def _replica(world, name: str = "two", facts: int | None = None) -> AllocatorState:
    """Another replica that folded the logs and the first ``facts`` facts."""
    state = AllocatorState(Rules(writer=name))
    for sequence, fact in enumerate(world.facts[:facts], 1):
        handle(state, FactSeen(sequence, fact))
    for pool, log in world.logs.items():
        for sequence, record in enumerate(log, 1):
            handle(state, RecordSeen(pool, 1, sequence, record))
    return state


def test_a_replica_takes_over_with_what_was_decided_before(world):
    _full(world)
    other = _replica(world)
    handle(world.state, StandBy("pool"))
    assert handle(other, Serve("pool", 1, len(world.logs["pool"]))) == []
    gone = world.state.facts.claims["claim-a"]
    world.claim(gone, deleted=True)
    effects = handle(other, FactSeen(len(world.facts), world.facts[-1]))
    kinds = [type(effect.record).__name__ for effect in effects if isinstance(effect, Append)]
    assert kinds == ["Released", "Decided"]


def test_nobody_decides_with_fewer_facts_than_the_log_was_written_with(world):
    _full(world)
    behind = _replica(world, facts=len(world.facts) - 1)
    assert handle(behind, Serve("pool", 1, len(world.logs["pool"]))) == []
    domain = behind.domains["pool"]
    assert not behind.ready(domain)
    handle(behind, FactSeen(len(world.facts), world.facts[-1]))
    assert behind.ready(domain)


def test_nobody_decides_before_the_log_was_folded_to_its_end(world):
    _full(world)
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
    assert world.state.ledger.of(device).shares == 1

    assert handle(world.state, AppendFailed("pool", 1, "stale")) == []
    assert world.state.ledger.of(device).shares == 0
    (again,) = handle(world.state, Serve("pool", 1, len(world.logs["pool"])))
    assert again == append


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
    _full(world)
    before = (list(world.state.ledger.claims()), world.state.facts.position)
    for sequence, fact in enumerate(world.facts, 1):
        assert handle(world.state, FactSeen(sequence, fact)) == []
    for sequence, record in enumerate(world.logs["pool"], 1):
        assert handle(world.state, RecordSeen("pool", 1, sequence, record)) == []
    assert (list(world.state.ledger.claims()), world.state.facts.position) == before


def test_a_new_epoch_starts_from_what_the_claims_say(world):
    _full(world)
    world.commit(world.decisions()["a"])
    held = world.state.facts.claims["claim-b"]
    world.claim(replace(held, void=last_attempt_before(2)))
    effects = world.see(DomainObserved(revision=2, domain="pool", epoch=2))
    assert Follow("pool", 2) in effects
    uses = dict(world.state.ledger.claims())
    assert list(uses) == ["claim-a"]


def test_after_the_facts_were_lost_nothing_is_decided_until_they_are_complete(world):
    _full(world)
    handle(world.state, FactsLost())
    assert not world.state.ready(world.state.domains["pool"])
    assert [uid for uid, _ in world.state.ledger.claims()] == ["claim-a", "claim-b"]


def test_facts_made_anew_must_name_the_epoch_before_anything_is_decided_or_found_oversold(world):
    """Until then the log may hold claims that went with the facts."""
    _full(world)
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
    world = _full(make_world(Rules(checkpoint_interval_s=60)).open())
    world.commit(world.decisions()["a"])
    world.tick(61)
    log = world.logs["pool"]
    assert isinstance(log[-1], Checkpoint)
    state = AllocatorState()
    for sequence, fact in enumerate(world.facts, 1):
        handle(state, FactSeen(sequence, fact))
    handle(state, RecordSeen("pool", 1, len(log), log[-1]))
    assert dict(state.ledger.claims()) == dict(world.state.ledger.claims())
    assert state.domains["pool"].current.pods == world.state.domains["pool"].current.pods


def test_every_record_can_be_computed_again_from_what_it_was_based_on(world):
    _full(world)
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


def test_a_device_sold_twice_is_reported(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"), world.ask("312", "40Gi"))
    decision = world.decisions()["p"]
    thief = world.a_claim("q", world.ask(), allocation=decision.claims[0].allocation)
    world.claim(thief)
    (alarm,) = world.oversold()
    assert alarm.claim_uid == "claim-q"
    assert alarm.device.endswith("n1-gpu0")


def test_time_passes_only_by_ticks(world):
    world.see(Tick(revision=world.next(), now_unix_s=world.now_unix_s - 50))
    assert world.state.facts.now_unix_s == world.now_unix_s


def test_an_administrator_s_look_uses_nothing(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"), world.ask("312", "40Gi"))
    (share,) = world.decisions()["p"].claims[0].allocation.devices
    looks = replace(
        world.decisions()["p"].claims[0].allocation, devices=(replace(share, admin_access=True),)
    )
    world.claim(world.a_claim("admin", world.ask(), allocation=looks))
    assert world.state.ledger.of(share.id).shares == 1
    assert not world.oversold()


def test_a_standby_keeps_no_queue_and_begins_with_everybody(world):
    world.nodes(world.a_node("n1"))
    handle(world.state, StandBy("pool"))
    world.submit(world.a_pod("p"))
    assert not world.state.domains["pool"].due
    world.serve()
    assert "p" in world.decisions()


def test_nothing_is_decided_before_every_log_was_read_once(world):
    """A node may come from a pool whose log alone knows what is still in use on it."""
    _full(world)
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
    _full(world)
    other = _replica(world)
    handle(other, Serve("pool", 1, len(world.logs["pool"])))
    further = DomainObserved(revision=1, domain="left", epoch=1)
    handle(other, FactSeen(len(world.facts) + 1, further))
    handle(other, LogLost("left", 1))
    assert other.ready(other.domains["pool"])


def test_a_log_that_was_cut_short_counts_as_what_is_left_of_it(world):
    _full(world)
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
    _full(world)
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
    _full(world)
    handle(world.state, FactsLost())
    assert handle(world.state, LogLost("pool", 1)) == []
    named = DomainObserved(revision=2, domain="pool", epoch=2)
    assert handle(world.state, FactSeen(1, named)) == [Follow("pool", 2)]


def test_a_pool_made_again_after_facts_and_log_were_lost_begins_anew(world):
    """Its epochs may begin at 1 again: nothing remembers the ones before."""
    _full(world)
    handle(world.state, LogLost("pool", 1))
    handle(world.state, FactsLost())
    named = DomainObserved(revision=1, domain="pool", epoch=1)
    assert handle(world.state, FactSeen(1, named)) == [Follow("pool", 1)]
    domain = world.state.domains["pool"]
    assert not domain.lost
    assert not domain.current.claims
