"""A decision counts before it is written, as it will once it is read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dray.api import names
from dray.api.pods import HostPort, PodClaim, PodNeeds
from dray.messages.decisions import Decided
from dray.messages.facts import PodObserved
from dray_allocator.nodes.table import NodeTable
from dray_allocator.state.domain import subjects

NIC = "example.com/nic"
specs = st.builds(
    lambda tflops, vram, count: (tflops, f"{vram}Gi", count),
    st.sampled_from(["0", "20", "150", "312"]),
    st.integers(1, 40),
    st.integers(1, 3),
)
needs_of = st.builds(
    PodNeeds,
    st.integers(0, 9_000),
    st.integers(0, 2**34),
    resources=st.sampled_from([{}, {NIC: 1}, {NIC: 2, "hugepages-2Mi": 2**21}]),
    ports=st.sampled_from([(), (HostPort(80),), (HostPort(53, "UDP"), HostPort(81))]),
)
acts = st.sampled_from(["commit", "void", "delete", "leave it"])


@pytest.fixture
def undone(world):
    """Checks that taking the log's decisions in once more finds nothing that was left out."""

    return lambda: _is_undone(world)


def _is_undone(world) -> None:
    before = _follows(world)
    for record in world.logs["pool"]:
        if isinstance(record, Decided):
            world.state.requeue(subjects(record))
    assert _follows(world) == before


@settings(max_examples=60)
@given(st.lists(st.tuples(specs, needs_of, acts), min_size=1, max_size=6))
def test_an_assumed_decision_counts_as_applying_everything_again_does(make_world, story):
    world = make_world().open()
    roomy = {NIC: 3, "hugepages-2Mi": 2**30}
    world.nodes(*(world.a_node(f"n{i}", resources=roomy) for i in range(3)), cards=3)
    for number, (spec, needs, act) in enumerate(story):
        uid = f"p{number}"
        world.submit(world.a_pod(uid, needs=needs), world.ask(*spec))
        _is_undone(world)
        _is_in_the_table(world)
        decision = world.decisions().get(uid)
        if decision is not None and act == "commit":
            world.commit(decision)
        elif decision is not None and act == "void":
            world.clear(decision.claims[0].uid, void=decision.claims[0].attempt)
        elif act == "delete":
            world.claim(world.state.facts.claims[f"claim-{uid}"], deleted=True)
        _is_undone(world)
        _is_in_the_table(world)


def _is_in_the_table(world) -> None:
    kept = world.state.tables.of("pool")
    rebuilt = NodeTable(world.state.tables._source)
    for name in kept.rows:
        rebuilt.put(name)
    for key in kept.dimensions:
        rebuilt.dimension(key)
    assert _seen(kept) == _seen(rebuilt)


def _seen(table: NodeTable) -> dict[str, tuple[object, ...]]:
    """Per node, what of it changes with decisions."""
    found = {}
    for name, row in table.rows.items():
        here = table.card_slice(row)
        left = {key: table.free[at][here].tolist() for key, at in table.dimensions.items()}
        free = table.cpu_milli_at[row], table.memory_bytes_at[row], table.pods_at[row]
        loads = table.load[here].tolist(), table.load_sum_at[row]
        found[name] = free, loads, table.open[here].tolist(), left
    return found


def test_a_pod_with_two_claims_counts_at_once(world, undone):
    world.nodes(world.a_node("n1"), cards=2)
    second = PodClaim("second", "second-gpu", "template")
    one = world.a_pod("one")
    world.claim(replace(world.a_claim("second", world.ask()), pod_uid="one"))
    world.submit(replace(one, claims=(*one.claims, second)))
    assert len(world.decisions()["one"].claims) == 2
    assert world.state.assumed_pods.has("one")
    undone()


def test_a_pod_that_only_looks_on_takes_its_room_on_the_node(world, undone):
    """None of the cards is used; what is held on the node counts all the same."""
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("one", needs=PodNeeds(1_000)), world.ask(admin_access=True))
    assert world.decisions()["one"].node == "n1"
    assert not world.state.suspects
    _is_in_the_table(world)
    undone()


def test_a_pod_leaves_the_queue_once_another_pod_got_the_shared_claim(world, undone):
    shared = replace(world.a_claim("shared", world.ask()), pod_uid="", pod_name="")
    world.claim(shared)
    reference = PodClaim(names.CLAIM_REFERENCE, shared.name, "")
    for uid in ("first", "second"):
        world.submit(world.a_pod(uid, claims=(reference,)))
    domain = world.state.domains["pool"]
    assert sorted(domain.queue.pending) == ["first", "second"]
    world.nodes(world.a_node("n1"))
    assert len(world.decisions()) == 1
    assert not domain.queue.pending
    undone()


def test_an_attempt_after_a_void_one_counts_at_once(world, undone):
    world.nodes(world.a_node("n1"), world.a_node("n2"))
    world.submit(world.a_pod("one"))
    first = world.decisions()["one"]
    world.clear("claim-one", void=first.claims[0].attempt)
    again = world.decisions()["one"]
    assert again.claims[0].attempt > first.claims[0].attempt
    assert world.state.assumed_pods.pods_on(again.node) == ("one",)
    undone()


def test_what_waits_for_a_pool_named_by_its_pod_alone_follows_the_pod(make_world):
    """A claim without a pool is of the pool of the pod that refers to it."""
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
        state.device_usage.version,
        state.assumed_pods.version,
        dict(state.suspects),
        dict(domain.queue.pending),
        dict(domain.unsettled),
        dict(domain.queue.deferred_reasons),
        domain.queue.capacity_version,
        domain.settle,
    )
