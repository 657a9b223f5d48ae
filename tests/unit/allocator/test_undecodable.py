"""What a fact that can't be decoded is about, and which pools are left to others for it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.allocator.conftest import World, claim_of, fraction, node, pod

from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import DeviceClass, DeviceId, DeviceTaintRule, ResourceSlice
from dray.api.groups import VOLCANO, GroupQueue, PodGroup
from dray.api.names import DRIVER
from dray.api.pods import GroupKey, Node, Policy, Pool
from dray.messages.base import Delivered, encode
from dray.messages.facts import (
    FACTS,
    ClaimObserved,
    ClusterObserved,
    DeviceClassObserved,
    DomainObserved,
    Fact,
    GroupObserved,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    PriorityClassObserved,
    QueueObserved,
    SliceObserved,
    Synced,
    TaintRuleObserved,
    TemplateObserved,
    TermBegun,
    Tick,
)
from dray_allocator.core.handle import handle
from dray_allocator.service.facts_consumer import fact_of
from dray_allocator.state.subscriptions import UndecodableFacts
from dray_allocator.values.events import FactSeen, RecordUndecodable, Subscribe
from dray_allocator.values.undecodable import UndecodableFact

POOL = "my.pool"


def held(*nodes: str) -> Allocation:
    shares = tuple(AllocatedDevice("r", DeviceId(DRIVER, name, "gpu-0")) for name in nodes)
    return Allocation(shares, nodes[0] if nodes else "")


CLAIM = claim_of("p", fraction(), POOL)
SLICE = ResourceSlice("s", "u", DRIVER, "n1", 1, 1, "n1", ())
CASES: list[tuple[Fact, UndecodableFact]] = [
    (
        ClaimObserved(revision=1, claim=replace(CLAIM, allocation=held("n1", "n2"))),
        UndecodableFact("", "", POOL, (POOL,), ("n1", "n2")),
    ),
    (ClaimObserved(revision=1, claim=CLAIM), UndecodableFact("", "", POOL, (POOL,))),
    (
        ClaimObserved(revision=1, claim=replace(CLAIM, pool="", allocation=held("n1"))),
        UndecodableFact("", "", nodes=("n1",)),
    ),
    (ClaimObserved(revision=1, claim=CLAIM, deleted=True), UndecodableFact("", "", POOL)),
    (
        ClaimObserved(revision=1, claim=CLAIM, deleted=True, moved_to="other"),
        UndecodableFact("", "", POOL, (POOL,)),
    ),
    (PodObserved(revision=1, pod=pod("p", POOL)), UndecodableFact("", "", POOL, (POOL,))),
    (PodObserved(revision=1, pod=pod("p", "")), UndecodableFact("", "")),
    (
        NodeObserved(revision=1, node=Node("n.1", "u", "a", leaving="b")),
        UndecodableFact("", "", "", ("a", "b"), ("n.1",)),
    ),
    (SliceObserved(revision=1, slice=SLICE), UndecodableFact("", "", nodes=("n1",))),
    (
        SliceObserved(revision=1, slice=replace(SLICE, node="")),
        UndecodableFact("", "", everywhere=True),
    ),
    (
        SliceObserved(revision=1, slice=replace(SLICE, driver="other.dev")),
        UndecodableFact("", ""),
    ),
    (PoolObserved(revision=1, pool=Pool(POOL, "u")), UndecodableFact("", "", pools=(POOL,))),
    (
        DomainObserved(revision=1, domain=POOL, epoch=1),
        UndecodableFact("", "", pools=(POOL,)),
    ),
    (PolicyObserved(revision=1, policy=Policy("on", "u")), UndecodableFact("", "", policy="on")),
    (
        GroupObserved(revision=1, group=PodGroup(key=GroupKey(VOLCANO, "a", "b"), uid="g")),
        UndecodableFact("", ""),
    ),
    (QueueObserved(revision=1, queue=GroupQueue("q")), UndecodableFact("", "")),
    (PriorityClassObserved(revision=1, name="high", value=1000), UndecodableFact("", "")),
    (
        DeviceClassObserved(revision=1, device_class=DeviceClass("c")),
        UndecodableFact("", "", everywhere=True),
    ),
    (
        TaintRuleObserved(revision=1, rule=DeviceTaintRule("r", "k", "v", "NoSchedule")),
        UndecodableFact("", "", everywhere=True),
    ),
    (ClusterObserved(revision=1), UndecodableFact("", "", everywhere=True)),
    (Synced(revision=1, instance="c"), UndecodableFact("", "", everywhere=True)),
    (Tick(revision=1, now_unix_s=1.0), UndecodableFact("", "", everywhere=True)),
    (InventoryObserved(revision=1, node="n1", driver=DRIVER), UndecodableFact("", "")),
    (
        TemplateObserved(revision=1, namespace="a", name="b", labels={}, spec={}),
        UndecodableFact("", ""),
    ),
    (TermBegun(revision=1, facts="x", instance="c"), UndecodableFact("", "")),
]


def broken(fact: Fact) -> Delivered:
    """The fact with a revision that this release can't decode."""
    message = encode(fact, source="/c")
    content = {**msgspec.json.decode(message.payload), "revision": "1.2.3"}
    payload = msgspec.json.encode(content)
    return Delivered(message.subject, payload, {}, "FACTS", 1, 0.0)


def test_every_kind_of_fact_is_among_the_cases() -> None:
    assert {type(fact) for fact, _ in CASES} == {*FACTS}


@pytest.mark.parametrize(("fact", "expected"), CASES)
def test_what_a_fact_is_about(fact: Fact, expected: UndecodableFact) -> None:
    found = fact_of(broken(fact), (DRIVER,))
    assert isinstance(found, UndecodableFact)
    assert "can't be decoded" in found.why
    assert (found.pool, found.pools, found.nodes, found.policy, found.everywhere) == (
        expected.pool,
        expected.pools,
        expected.nodes,
        expected.policy,
        expected.everywhere,
    )


def test_a_fact_that_is_nested_deep_is_about_its_object_as_well() -> None:
    deep = b'{"revision":"1.2.3","newer":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    found = fact_of(Delivered("dray.state.claim.v1.p.u", deep, {}, "F", 1, 0.0), (DRIVER,))
    assert isinstance(found, UndecodableFact)
    assert (found.pools, found.everywhere) == (("p",), False)


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"claim": 1}', b"\xff"])
def test_one_of_which_nothing_can_be_read_stops_all_pools(payload: bytes) -> None:
    found = fact_of(Delivered("dray.state.claim.v1.p.u", payload, {}, "F", 1, 0.0), (DRIVER,))
    assert isinstance(found, UndecodableFact)
    assert (found.pool, found.everywhere) == ("p", True)


subjects = st.sampled_from("abcdef")
facts = st.builds(
    UndecodableFact,
    subjects,
    st.just("why"),
    st.sampled_from(["", "p", "q"]),
    st.lists(st.sampled_from("pqr"), max_size=2, unique=True).map(tuple),
    st.lists(st.sampled_from(["n1", "n2"]), max_size=2, unique=True).map(tuple),
    st.sampled_from(["", "on"]),
    st.booleans(),
)


@given(st.lists(st.one_of(facts, subjects, st.sampled_from([("p",), ("q",)])), max_size=20))
def test_the_newest_fact_of_each_object_counts(steps: list[object]) -> None:
    kept = UndecodableFacts()
    newest: dict[str, UndecodableFact] = {}
    for step in steps:
        match step:
            case UndecodableFact():
                kept.put(step)
                newest[step.subject] = step
            case str():
                kept.drop(step)
                newest.pop(step, None)
            case (pool,):
                kept.forget_pools(lambda name, pool=pool: name != pool)  # type: ignore[misc]
                newest = {key: one for key, one in newest.items() if one.pool != pool}
    members = {"p": ("n1",), "q": ("n2", "n3"), "r": ()}
    for pool, policy in (("p", "on"), ("q", "off"), ("r", "")):
        stopped = any(
            one.everywhere
            or pool in one.pools
            or (one.policy and one.policy == policy)
            or any(name in members[pool] for name in one.nodes)
            for one in newest.values()
        )
        assert bool(kept.stop(pool, members[pool], policy)) == stopped
    assert bool(kept.facts) == any(one.stops for one in newest.values())
    assert bool(kept.any()) == bool(kept.facts)


def two_pools(make_world: type[World]) -> World:
    world = make_world(pools=("pool", "other")).open()
    return world.nodes(node("n1"), node("o1", "other"))


def see(world: World, fact: Fact) -> None:
    """The next fact, which can't be decoded."""
    world.facts.append(fact)
    delivered = broken(fact)
    found = fact_of(delivered, (DRIVER,))
    assert found is not None
    world.do(FactSeen(len(world.facts), found))


def test_a_pool_is_decided_upon_again_once_its_fact_can_be_decoded(make_world) -> None:
    world = two_pools(make_world)
    fact = ClaimObserved(revision=world.next(), claim=claim_of("x", fraction()))
    see(world, fact)
    world.submit(pod("p"))
    world.submit(pod("q", "other"))
    assert {*world.decisions()} == {"q"}
    world.see(fact)
    assert {*world.decisions()} == {"p", "q"}


def test_a_claim_of_no_pool_stops_the_pools_of_the_nodes_that_it_holds_devices_on(
    make_world,
) -> None:
    world = two_pools(make_world)
    claim = claim_of("x", fraction(), "", allocation=held("o1"))
    see(world, ClaimObserved(revision=world.next(), claim=claim))
    world.submit(pod("p"))
    world.submit(pod("q", "other"))
    assert {*world.decisions()} == {"p"}


def test_a_slice_stops_the_pool_of_its_node_also_if_the_nodes_fact_comes_later(
    make_world,
) -> None:
    world = make_world(pools=("pool", "other")).open()
    see(world, SliceObserved(revision=world.next(), slice=replace(SLICE, node="n1")))
    world.nodes(node("o1", "other"))
    world.node(node("n1"))
    world.submit(pod("p"))
    world.submit(pod("q", "other"))
    assert {*world.decisions()} == {"q"}


def test_a_policy_stops_the_pools_that_name_it(make_world) -> None:
    world = two_pools(make_world)
    see(world, PolicyObserved(revision=world.next(), policy=Policy("elsewhere", "u")))
    world.submit(pod("p"))
    assert {*world.decisions()} == {"p"}
    see(world, PolicyObserved(revision=world.next(), policy=Policy("policy", "u")))
    world.submit(pod("q", "other"))
    assert {*world.decisions()} == {"p"}


def test_a_pool_stops_with_those_that_have_a_say_in_it(make_world) -> None:
    """A node of ``other`` may carry what only the log of ``pool`` knows."""
    world = two_pools(make_world)
    tied = NodeObserved(revision=world.next(), node=node("o1", "other"), former=("pool",))
    world.see(tied)
    world.do(RecordUndecodable("pool", 1, "a newer record"))
    world.submit(pod("q", "other"))
    assert not world.decisions()
    assert world.state.undecodable_for("other") == "a newer record"
    world.see(NodeObserved(revision=world.next(), node=node("o1", "other")))
    assert {*world.decisions()} == {"q"}


def test_devices_of_several_nodes_make_it_all_pools(make_world) -> None:
    world = two_pools(make_world)
    world.do(RecordUndecodable("pool", 1, "a newer record"))
    assert world.state.undecodable_for("other") == ""
    wide = replace(SLICE, name="wide", node="", pool="rack")
    world.see(SliceObserved(revision=world.next(), slice=wide))
    assert world.state.published.shared_pools
    assert world.state.undecodable_for("other") == "a newer record"


def test_an_undecodable_record_counts_until_the_next_epoch(make_world) -> None:
    world = two_pools(make_world)
    world.submit(pod("p"))
    world.do(RecordUndecodable("pool", 1, "a newer record"))
    world.serve()
    world.submit(pod("r"))
    assert {*world.decisions()} == {"p"}
    world.do(RecordUndecodable("pool", 7, "of another epoch"))
    world.see(DomainObserved(revision=2, domain="pool", epoch=2))
    assert world.state.undecodable_for("pool") == ""


def test_a_pool_that_is_attended_no_more_is_left_to_others_for_what_was_met_in_it(
    make_world,
) -> None:
    """Its facts are forgotten, and would be met again once it was taken again."""
    world = two_pools(make_world)
    see(world, ClaimObserved(revision=world.next(), claim=claim_of("x", fraction())))
    handle(world.state, Subscribe(("other",)))
    assert not world.state.facts.undecodable.facts
    assert "can't be decoded" in world.state.undecodable_for("pool")
    assert world.state.undecodable_for("other") == ""


def test_of_a_claim_whose_fact_can_t_be_decoded_what_was_known_goes_on_counting(
    make_world,
) -> None:
    world = two_pools(make_world)
    world.submit(pod("p"), fraction("312", "40Gi"))
    world.commit(world.decisions()["p"])
    before = [*world.state.device_usage.claims()]
    see(world, ClaimObserved(revision=world.next(), claim=claim_of("p", fraction())))
    see(world, ClaimObserved(revision=world.next(), claim=claim_of("p", fraction()), deleted=True))
    assert world.state.undecodable_for("pool") == ""
    assert [*world.state.device_usage.claims()] == before
    world.submit(pod("q"))
    assert "q" not in world.decisions()
