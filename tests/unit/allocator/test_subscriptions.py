"""Replicas subscribe to the pools that they serve and to the dependencies of these."""

import pytest
from msgspec.structs import replace

from dray.messages.decisions import Decided, Released, Waiting
from dray.messages.facts import ClaimObserved, NodeObserved, PodObserved, SliceObserved
from dray_allocator.core.handle import handle
from dray_allocator.state.state import AllocatorState
from dray_allocator.state.subscriptions import PoolDependencies, Subscriptions
from dray_allocator.values.events import (
    Append,
    EarlierFact,
    EarlierFactsRead,
    FactSeen,
    Follow,
    RecordSeen,
    Serve,
    Subscribe,
    Unfollow,
)
from dray_allocator.values.options import AllocatorOptions

WHOLE_CARD = ("312", "40Gi")


class Partial:
    """A second replica, which starts with subscriptions to some pools."""

    def __init__(self, world, *pools: str) -> None:
        self.world = world
        self.state = AllocatorState(AllocatorOptions(writer="two"))
        self.at = 0
        self.subscribe(*pools)
        self.read_on()

    def subscribe(self, *pools: str) -> list[object]:
        return handle(self.state, Subscribe(pools))

    def read_on(self) -> list[object]:
        """What is new of the facts that it attends."""
        effects: list[object] = []
        for sequence in range(self.at + 1, len(self.world.facts) + 1):
            fact = self.world.facts[sequence - 1]
            if self.state.subscriptions.takes(fact.subject_pool()):
                effects += handle(self.state, FactSeen(sequence, fact))
        self.at = len(self.world.facts)
        return effects

    def read_earlier(self, pool: str) -> None:
        last = 0
        for sequence, fact in enumerate(self.world.facts, 1):
            if fact.subject_pool() == pool:
                handle(self.state, EarlierFact(sequence, fact))
                last = sequence
        handle(self.state, EarlierFactsRead((pool,), last))

    def read_log(self, pool: str) -> list[object]:
        effects: list[object] = []
        for sequence, record in enumerate(self.world.logs[pool], 1):
            more = sequence < len(self.world.logs[pool])
            effects += handle(self.state, RecordSeen(pool, 1, sequence, record, more))
        return effects

    def serve(self, pool: str) -> list[object]:
        return handle(self.state, Serve(pool, 1, len(self.world.logs[pool])))


def records(effects) -> list[object]:
    return [effect.record for effect in effects if isinstance(effect, Append)]


@pytest.fixture
def world(make_world):
    return make_world(pools=("a", "b")).open()


def placed(world, uid: str, pool: str) -> None:
    """A pod that takes a whole card, committed."""
    world.submit(world.a_pod(uid, pool), world.ask(*WHOLE_CARD))
    world.commit(world.decisions()[uid])
    world.tick()


def test_facts_and_records_of_other_pools_are_not_taken_in(world):
    world.nodes(world.a_node("n1", "a"), world.a_node("n2", "b"))
    placed(world, "p", "a")
    placed(world, "q", "b")
    two = Partial(world, "b")
    assert list(two.state.facts.claims) == ["claim-q"]
    assert list(two.state.facts.pods) == ["q"]
    assert (list(two.state.domains), list(two.state.unread_domains)) == (["b"], ["a"])
    assert len(two.state.facts.nodes) == 2


def test_a_node_that_moved_is_not_decided_upon_before_its_former_pool_is_known(world):
    """Its allocation was cleared and not voided: an executor that sleeps may write it again, which
    only the former pool's log tells."""
    world.nodes(world.a_node("n1", "a"))
    placed(world, "p", "a")
    leaving = world.a_node("n1", "", leaving="a", leaving_since=world.next())
    world.node(leaving)
    moved = NodeObserved(revision=world.next(), node=world.a_node("n1", "b"), former=("a",))
    world.see(moved)
    world.clear("claim-p")
    two = Partial(world, "b")
    two.read_log("b")
    two.serve("b")
    pod = world.a_pod("q", "b")
    world.facts += [
        ClaimObserved(revision=world.next(), claim=world.a_claim("q", world.ask(*WHOLE_CARD), "b")),
        PodObserved(revision=world.next(), pod=pod),
    ]
    assert records(two.read_on()) == []

    assert two.subscribe("a", "b") == [Follow("a", 1)]
    two.read_earlier("a")
    assert not two.state.ready(two.state.domains["b"]), "the former pool's log was not read"
    (reasons,) = records(two.read_log("a"))
    assert isinstance(reasons, Waiting)

    world.see(moved)
    world.clear("claim-p", void=world.decisions()["p"].claims[0].attempt)
    (decided,) = [one for one in records(two.read_on()) if isinstance(one, Decided)]
    assert [one.pod_uid for one in decided.pods] == ["q"]


def test_what_is_forgotten_is_not_gone(world):
    world.nodes(world.a_node("n1", "a"), world.a_node("n2", "b"))
    world.submit(world.a_pod("p", "a"), world.ask(*WHOLE_CARD))
    two = Partial(world, "a", "b")
    for pool in ("a", "b"):
        two.read_log(pool)
    assert [uid for uid, _ in two.state.device_usage.claims()] == ["claim-p"]
    assert two.subscribe("b") == [Unfollow("a")]
    assert (two.state.facts.claims, two.state.facts.gone_claims) == ({}, {})
    assert [uid for uid, _ in two.state.device_usage.claims()] == []

    two.subscribe("a", "b")
    two.serve("a")
    assert not two.state.ready(two.state.domains["a"])
    two.read_earlier("a")
    assert not any(isinstance(one, Released) for one in records(two.read_log("a")))
    assert [uid for uid, _ in two.state.device_usage.claims()] == ["claim-p"]


def test_a_pool_is_whole_once_the_facts_have_reached_what_was_met_of_it():
    subscriptions = Subscriptions()
    subscriptions.subscribe(("a",), 0)
    subscriptions.subscribe(("a", "b"), 10)
    subscriptions.read(("b",), 14)
    assert [subscriptions.is_caught_up("b", at) for at in (10, 13, 14)] == [False, False, True]
    assert subscriptions.is_caught_up("a", 10)


def test_who_attends_everything_again_knows_what_it_knew_meanwhile():
    subscriptions = Subscriptions()
    subscriptions.subscribe(("a",), 0)
    subscriptions.subscribe(None, 10)
    assert (subscriptions.is_caught_up("a", 10), subscriptions.is_caught_up("b", 10)) == (
        True,
        False,
    )
    subscriptions.read(None, 12)
    assert (subscriptions.is_caught_up("b", 11), subscriptions.is_caught_up("b", 12)) == (
        False,
        True,
    )
    subscriptions.subscribe(("b",), 12)
    assert (subscriptions.is_caught_up("b", 12), subscriptions.is_caught_up("a", 12)) == (
        True,
        False,
    )


def test_a_reading_for_other_pools_brings_nothing_of_a_pool_that_is_known():
    """It runs ahead of the facts of all nodes: what is decided on both, nobody decides again."""
    subscriptions = Subscriptions()
    subscriptions.subscribe(("a",), 0)
    subscriptions.subscribe(("a", "b"), 10)
    assert [subscriptions.awaits(pool) for pool in ("", "a", "b", "c")] == [
        False,
        False,
        True,
        False,
    ]
    subscriptions.subscribe(None, 10)
    assert [subscriptions.awaits(pool) for pool in ("", "a", "b", "c")] == [
        False,
        False,
        True,
        True,
    ]
    subscriptions.read(None, 12)
    assert [subscriptions.awaits(pool) for pool in ("", "a", "b", "c")] == [False] * 4


def test_a_claim_of_pods_of_two_pools_ties_them_both_ways(world):
    claim = world.a_claim("p", world.ask(), "a")
    ties = PoolDependencies()
    ties.claim(ClaimObserved(revision=1, claim=claim, beside=("b",)))
    ties.node(NodeObserved(revision=1, node=world.a_node("n", "c"), former=("b",)))
    assert ties.of("a") == ("a", "b")
    assert ties.of("b") == ("b", "a")
    assert ties.of("c") == ("c", "b", "a")
    ties.claim(ClaimObserved(revision=2, claim=claim, deleted=True))
    assert (ties.of("a"), ties.of("c")) == (("a",), ("c", "b"))


def test_a_claim_that_changed_its_pool_is_not_gone(world):
    world.nodes(world.a_node("n1", "a"))
    world.submit(world.a_pod("p", "a"), world.ask(*WHOLE_CARD))
    two = Partial(world, "a")
    two.read_log("a")
    two.serve("a")
    claim = replace(world.state.facts.claims["claim-p"], pool="b")
    tombstone = ClaimObserved(
        revision=world.next(),
        claim=replace(claim, pool="a"),
        deleted=True,
        moved_to="b",
    )
    world.facts.append(tombstone)
    assert records(two.read_on()) == []
    assert two.state.pool_dependencies.of("a") == ("a", "b")
    assert [uid for uid, _ in two.state.device_usage.claims()] == ["claim-p"]


def test_devices_of_no_single_node_make_every_pool_have_a_say(world):
    two = Partial(world, "b")
    two.read_log("b")
    assert two.state.is_caught_up("b")
    wide = replace(world.a_slice("x", [world.a_card("net")]), node="")
    world.facts.append(SliceObserved(revision=world.next(), slice=wide))
    two.read_on()
    assert not two.state.is_caught_up("b")


def test_whatever_is_read_first_a_claim_that_moved_ties_the_pools_that_it_was_in(world):
    """The new pool's fact may be known before the old one's tombstone; it may move again."""
    claim = world.a_claim("c", world.ask(), "b")
    state = AllocatorState()
    handle(state, Subscribe(("b",)))
    handle(state, FactSeen(1, ClaimObserved(revision=2, claim=claim)))
    handle(state, Subscribe(("a", "b")))
    tombstone = ClaimObserved(
        revision=2, claim=replace(claim, pool="a"), deleted=True, moved_to="b"
    )
    handle(state, EarlierFact(1, tombstone))
    assert state.pool_dependencies.of("a") == ("a", "b")
    state.pool_dependencies.claim(
        ClaimObserved(revision=3, claim=claim, deleted=True, moved_to="c")
    )
    assert state.pool_dependencies.of("a") == ("a", "b", "c")
    state.pool_dependencies.forget(claim.uid)
    assert state.pool_dependencies.of("a") == ("a",)
