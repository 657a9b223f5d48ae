"""What a replica says of its state, and that a fold of the same facts and records says the same."""

import msgspec
import pytest
from msgspec.structs import replace

from dray.api.claims import first_attempt
from dray.messages.rpc import Dump, DumpReply
from dray_allocator.core import dump
from dray_allocator.core.dump import answer_to, double_allocations, holdings_of, page
from dray_allocator.core.handle import handle
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen, RecordSeen, StandBy
from dray_allocator.values.options import AllocatorOptions

ATTEMPT = first_attempt(1)


def asked(state: AllocatorState, **question: str) -> DumpReply | None:
    """The answer of a replica with this state."""
    answer = answer_to(state, msgspec.json.encode(Dump(**question)))
    return None if answer is None else msgspec.json.decode(answer, type=DumpReply)


def folded(world) -> AllocatorState:
    """The state of somebody who only reads."""
    state = AllocatorState(AllocatorOptions(writer="reader"))
    for sequence, fact in enumerate(world.facts, 1):
        handle(state, FactSeen(sequence, fact, more=True))
    for name, log in world.logs.items():
        for sequence, record in enumerate(log, 1):
            handle(state, RecordSeen(name, 1, sequence, record, more=True))
    return state


def test_a_reservation_is_dumped_with_its_stage_and_what_counts(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"))

    answer = asked(world.state, domain="pool")

    assert (answer.domain, answer.instance, answer.epoch) == ("pool", "one", 1)
    assert (answer.facts_sequence, answer.log_sequence) == (
        len(world.facts),
        len(world.logs["pool"]),
    )
    (holding,) = answer.holdings
    assert (holding.name, holding.attempt, holding.stage) == ("p-gpu", ATTEMPT, "held")
    assert holding.used == holding.decided
    assert holding.used[0].consumed["virtual_vram"] == "16Gi"


def test_what_is_committed_and_changed_by_hand_counts_as_the_status_says(world):
    world.nodes(world.a_node("n1"), cards=2)
    world.submit(world.a_pod("p"))
    decision = world.decisions()["p"]
    world.commit(decision)
    world.tick()
    (device,) = decision.claims[0].allocation.devices
    other = "n1-gpu1" if device.id.device == "n1-gpu0" else "n1-gpu0"
    moved = replace(device, id=msgspec.structs.replace(device.id, device=other))
    known = world.state.facts.claims["claim-p"]
    world.claim(replace(known, allocation=replace(known.allocation, devices=(moved,))))

    (holding,) = asked(world.state, domain="pool").holdings

    assert holding.stage == "committed"
    assert holding.decided == (device,)
    assert holding.used == (moved,)


def test_a_replica_that_does_not_serve_gives_the_same_reasons(world):
    world.nodes(world.a_node("n1"), world.a_node("n2"), cards=2)
    for uid in ("a", "b", "c", "d"):
        world.submit(world.a_pod(uid))
    world.commit(world.decisions()["a"])
    world.tick()
    world.clear("claim-b", void=ATTEMPT)

    reader = folded(world)

    served = {one.uid: one for one in asked(world.state, domain="pool").holdings}
    assert holdings_of(reader, reader.domains["pool"]) == served
    assert len(served) == 4


def test_only_the_replica_that_serves_answers(world):
    assert asked(folded(world), domain="pool") is None
    assert asked(world.state, domain="other") is None
    assert asked(world.state, domain="pool") is not None

    world.do(StandBy("pool"))
    assert asked(world.state, domain="pool") is None


def test_a_question_that_can_t_be_read_is_answered_with_that(world):
    answer = answer_to(world.state, b"{}")
    assert answer is not None
    assert "can't be read" in msgspec.json.decode(answer, type=DumpReply).error


@pytest.mark.parametrize("bound", ["PAGE_CLAIMS", "PAGE_BYTES"])
def test_pages_tell_every_claim_once(world, monkeypatch, bound):
    monkeypatch.setattr(dump, bound, 2)
    world.nodes(world.a_node("n1"), cards=3)
    for uid in ("a", "b", "c", "d", "e"):
        world.submit(world.a_pod(uid))
    domain = world.state.domains["pool"]

    pages = [page(world.state, domain)]
    while pages[-1].more:
        pages.append(page(world.state, domain, pages[-1].holdings[-1].uid))

    reasons = [one.uid for answer in pages for one in answer.holdings]
    assert reasons == [f"claim-{uid}" for uid in "abcde"]
    assert len(pages) >= 3


def test_a_card_that_two_claims_fill_is_named_with_both(world):
    world.nodes(world.a_node("n1"))
    for uid in ("a", "b"):
        world.submit(world.a_pod(uid))
        world.commit(world.decisions()[uid])
    assert not list(double_allocations(world.state))

    known = world.state.facts.claims["claim-b"]
    (device,) = known.allocation.devices
    more = replace(device, consumed=device.consumed | {"virtual_vram": "30Gi"})
    world.claim(replace(known, allocation=replace(known.allocation, devices=(more,))))

    (sale,) = double_allocations(world.state)
    assert sale.device == device.id
    assert sale.claim_uids == ("claim-a", "claim-b")
    assert "46Gi are in use" in sale.detail
