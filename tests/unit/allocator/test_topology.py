"""Cards that NVLink joins, a NUMA node or a PCIe root, where devices are chosen."""

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dray.api import names
from dray.api.claims import ClaimSpec, Constraint, DeviceRequest
from dray.api.devices import OpaqueConfig
from dray.api.pods import PodNeeds, Policy
from dray.messages.facts import PolicyObserved, SliceObserved
from dray_allocator.placement.choice import CONNECTED_NODES

LINKED = ("x", 0, "r0")


def asks(count=2, containers=1, **parameters):
    """Whole cards, or a request per container."""
    requests = tuple(
        DeviceRequest(f"r{number}", names.DEVICE_CLASS, count=count) for number in range(containers)
    )
    fields = {"apiVersion": names.API_VERSION, "kind": names.LIMITS_KIND, **parameters}
    return ClaimSpec(requests, config=(OpaqueConfig(names.DRIVER, fields, ()),))


def put(world, node, *links, **about):
    """A node with cards that are joined so: NVLink domain, NUMA node, PCIe root."""
    cards = []
    for index, values in enumerate(links):
        card = world.a_card(f"{node}-{index}")
        named = zip((names.NVLINK_DOMAIN, names.NUMA_NODE, names.PCIE_ROOT), values, strict=True)
        found = {name: value for name, value in named if value is not None}
        cards.append(replace(card, attributes={**card.attributes, "slot": index // 2, **found}))
    part = world.a_slice(node, cards, generation=world.next())
    world.see(SliceObserved(revision=world.next(), slice=part))
    world.node(world.a_node(node, **about))


def given_to(world, uid):
    """Indexes of the pod's cards on their node."""
    if uid not in world.decisions():
        return None
    devices = world.decisions()[uid].claims[0].allocation.devices
    return sorted(int(one.id.device.rpartition("-")[2]) for one in devices)


def link_level(links):
    """How well cards are joined, by brute force: 0 is best, 7 not at all."""
    nvlink, numa, pcie = (
        len({*values}) == 1 and None not in values for values in zip(*links, strict=True)
    )
    return (not nvlink) * 4 + (not numa) * 2 + (not pcie)


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("topology", ["soft", "hard"])
def test_no_set_of_free_cards_is_joined_better(make_world, topology, seed):
    random = Random(seed)
    world = make_world().open("CompactFirst", placement_topology=topology)
    links = [
        (random.choice(("x", "y", None)), random.choice((0, 1, None)), random.choice("pqr"))
        for _ in range(random.randint(2, 7))
    ]
    put(world, "n", *links)
    for number in range(random.randrange(3)):
        world.submit(world.a_pod(f"old{number}"), asks(1))
    used = {card for number in range(3) for card in given_to(world, f"old{number}") or ()}
    free = [index for index in range(len(links)) if index not in used]
    count = random.randint(2, 3)
    world.submit(world.a_pod("a"), asks(count))
    link_levels = [link_level([links[at] for at in cards]) for cards in combinations(free, count)]
    chosen = given_to(world, "a")
    if not link_levels or (topology == "hard" and min(link_levels) == 7):
        assert chosen is None
    else:
        assert link_level([links[at] for at in chosen]) == min(link_levels)


def test_of_groups_that_are_joined_alike_the_smallest_is_taken(world):
    put(world, "n", *[(None, 0, None)] * 3, *[(None, 1, None)] * 2, *[(None, 2, None)] * 4)
    world.submit(world.a_pod("a"), asks(2))
    assert given_to(world, "a") == [3, 4]
    world.submit(world.a_pod("b"), asks(2))
    assert set(given_to(world, "b")) < {0, 1, 2}


def test_where_it_does_not_matter_the_score_decides(world, make_world):
    """Two cards are in use, one of each group; they are the fullest."""
    links = [("x", 0, None), ("x", 0, None), ("y", 1, None), ("y", 1, None)]
    for topology, expected in (("none", {0, 2}), ("soft", None)):
        world = make_world().open("CompactFirst", placement_topology=topology)
        put(world, "n", *links)
        for number, card in ((0, "n-0"), (1, "n-2")):
            selector = f'device.attributes["{names.DRIVER}"].uuid == "{card}"'
            world.submit(world.a_pod(f"one{number}"), world.ask("1", "1Gi", selectors=(selector,)))
        world.submit(world.a_pod("a"), world.ask("1", "1Gi", count=2))
        chosen = set(given_to(world, "a"))
        assert chosen == expected if expected else chosen in ({0, 1}, {2, 3})


def test_nodes_whose_cards_nvlink_joins_come_before_fuller_ones(world):
    put(world, "full", *[(None, 0, "r")] * 3)
    world.submit(world.a_pod("old"), asks(1))
    put(world, "linked", LINKED, LINKED)
    world.submit(world.a_pod("a"), asks(2))
    assert world.decisions()["a"].node == "linked"
    world.submit(world.a_pod("b"), asks(2))
    assert world.decisions()["b"].node == "full"


def test_only_the_best_nodes_by_score_are_compared(world):
    fuller = [f"full{number}" for number in range(CONNECTED_NODES)]
    for name in fuller:
        put(world, name, *[(None, 0, "r")] * 3, labels={"host": name})
        world.submit(world.a_pod(name, needs=PodNeeds(node_selector={"host": name})), asks(1))
    put(world, "linked", LINKED, LINKED)
    world.submit(world.a_pod("a"), asks(2))
    assert world.decisions()["a"].node in fuller


def test_a_pod_waits_for_connected_cards_with_that_reason(world):
    put(world, "n", ("x", 0, "r"), (None, 1, "s"))
    put(world, "m", (None, None, None), (None, None, None))
    world.submit(world.a_pod("a"), asks(2, gpuTopology="hard"))
    assert "a" not in world.decisions()
    (reason,) = (one for one in world.waits("a")[-1].reasons if one.kind == "count")
    assert reason.what == (
        "fewer than 2 matching devices with room on one node, joined by NVLink, on one NUMA node "
        "or under one PCIe root"
    )
    assert (reason.failed, reason.of) == (2, 2)
    world.submit(world.a_pod("b"), asks(2))
    assert world.decisions()["b"].node
    put(world, "k", (None, 1, None), (None, 1, None))
    assert world.decisions()["a"].node == "k"


def test_who_waits_for_joined_cards_is_tried_again_when_the_policy_is_softer(make_world):
    world = make_world().open("CompactFirst", placement_topology="hard")
    put(world, "n", *[(None, None, None)] * 4)
    for uid in ("a", "b"):
        world.submit(world.a_pod(uid), asks(2))
    assert not world.decisions()
    softer = Policy("policy", "u", placement="CompactFirst", version=4)
    world.see(PolicyObserved(revision=world.next(), policy=softer))
    world.tick()
    assert sorted(world.decisions()) == ["a", "b"]


def test_shares_of_a_single_card_are_joined(make_world):
    world = make_world().open("LowLoadFirst", placement_topology="hard")
    put(world, "n", *[(None, None, None)] * 2)
    spec = asks(1, containers=2)
    some = tuple(
        replace(one, capacity={"virtual_tflops": "1", "virtual_vram": "1Gi"})
        for one in spec.requests
    )
    world.submit(world.a_pod("a"), replace(spec, requests=some))
    first, second = given_to(world, "a")
    assert first == second


def test_one_gpu_is_never_refused_for_its_joints(make_world):
    world = make_world().open("CompactFirst", placement_topology="hard")
    put(world, "n", (None, None, None))
    world.submit(world.a_pod("a"), asks(1))
    assert given_to(world, "a") == [0]


def test_a_search_for_connected_cards_is_bounded_and_the_reason_says_so(make_world):
    world = make_world().open("CompactFirst", placement_topology="hard")
    put(world, "n", *[("x", 0, "r")] * 20)
    spec = asks(12)
    rule = Constraint(distinct_attribute=names.qualified("slot"))
    world.submit(world.a_pod("a"), replace(spec, constraints=(rule,)))
    assert "a" not in world.decisions()
    assert "devices among the first" in str(world.waits("a")[-1].reasons)


def test_where_nvlink_joins_no_cards_the_best_node_by_score_is_taken(world):
    put(world, "full", (None, 0, "r"), (None, 1, "s"), (None, 2, "t"))
    world.submit(world.a_pod("old"), asks(1))
    put(world, "empty", *[(None, 0, "r")] * 2)
    world.submit(world.a_pod("a"), asks(2))
    assert world.decisions()["a"].node == "full"


def test_the_node_table_counts_cards_connected_by_nvlink(world):
    for links in ([LINKED, LINKED], [LINKED, (None, 0, "r")], [LINKED] * 3, [(None, 0, None)], []):
        put(world, "n", *links)
        put(world, "m", LINKED)
        linked = sum(one == LINKED for one in links)
        assert world.state.tables.of("pool").linked == linked + 1
    world.node(world.a_node("m"), deleted=True)
    assert world.state.tables.of("pool").linked == 0


def test_connections_are_equal_with_their_types_only(make_world):
    world = make_world().open()
    put(world, "n1", (None, 1, None), (None, True, None))
    world.submit(world.a_pod("p"), asks(**{names.TOPOLOGY_FIELD: "hard"}))
    assert given_to(world, "p") is None
    put(world, "n2", (None, 1, None), (None, 1, None))
    assert given_to(world, "p") == [0, 1]
