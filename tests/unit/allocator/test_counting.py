"""A decision counts before it is written, as it will once it is read."""

import pytest
from msgspec.structs import replace

from dray.domain import names
from dray.domain.pods import PodClaim
from dray.messages.decisions import Decided
from dray.messages.facts import PodObserved
from dray_allocator.folding import subjects


@pytest.fixture
def undone(world):
    """Checks that taking the log's decisions in once more finds nothing that was left out."""

    def check() -> None:
        before = _follows(world)
        for record in world.logs["pool"]:
            if isinstance(record, Decided):
                world.state.touch(subjects(record))
        assert _follows(world) == before

    return check


def test_a_pod_with_two_claims_counts_at_once(world, undone):
    world.nodes(world.a_node("n1"), cards=2)
    second = PodClaim("second", "second-gpu", "template")
    one = world.a_pod("one")
    world.claim(replace(world.a_claim("second", world.ask()), pod_uid="one"))
    world.submit(replace(one, claims=(*one.claims, second)))
    assert len(world.decisions()["one"].claims) == 2
    assert world.state.holds.has("one")
    undone()


def test_who_shares_a_claim_has_no_turn_once_another_got_it(world, undone):
    shared = replace(world.a_claim("shared", world.ask()), pod_uid="", pod_name="")
    world.claim(shared)
    reference = PodClaim(names.CLAIM_REFERENCE, shared.name, "")
    for uid in ("first", "second"):
        world.submit(world.a_pod(uid, claims=(reference,)))
    domain = world.state.domains["pool"]
    assert sorted(domain.pending) == ["first", "second"]
    world.nodes(world.a_node("n1"))
    assert len(world.decisions()) == 1
    assert not domain.pending
    undone()


def test_an_attempt_after_a_void_one_counts_at_once(world, undone):
    world.nodes(world.a_node("n1"), world.a_node("n2"))
    world.submit(world.a_pod("one"))
    first = world.decisions()["one"]
    world.clear("claim-one", void=first.claims[0].attempt)
    again = world.decisions()["one"]
    assert again.claims[0].attempt > first.claims[0].attempt
    assert world.state.holds.pods_on(again.node) == ("one",)
    undone()


def test_what_waits_for_a_pool_named_by_its_pod_alone_follows_the_pod(make_world):
    """A claim without a pool is of the pool of whoever refers to it."""
    world = make_world(pools=("pool", "other")).open()
    world.nodes(world.a_node("n1"))
    moving = world.a_pod("one", pool="other")
    world.claim(world.a_claim("one", world.ask(), pool="", decision=7))
    world.see(PodObserved(revision=world.next(), pod=moving))
    assert list(world.state.domains["other"].unsettled) == ["claim-one"]
    moved = replace(moving, pool="pool")
    world.see(PodObserved(revision=world.next(), pod=moved))
    assert list(world.state.domains["pool"].unsettled) == ["claim-one"]
    assert not world.state.domains["other"].unsettled


def _follows(world) -> tuple[object, ...]:
    """All that follows from the log and the facts."""
    state, domain = world.state, world.state.domains["pool"]
    return (
        state.ledger.version,
        state.holds.version,
        dict(state.suspects),
        dict(domain.pending),
        dict(domain.unsettled),
        dict(domain.late),
        domain.supply,
        domain.settle,
    )
