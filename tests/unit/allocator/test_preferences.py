"""Pods with a preference get what a search of every node would give them, from few searches."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.allocator.reference_search import NOT_CONNECTED, Reference

from dray.api import names
from dray.api.claims import ClaimSpec, Constraint, DeviceRequest
from dray.api.devices import OpaqueConfig
from dray.api.pods import PodNeeds
from dray.messages.facts import SliceObserved
from dray_allocator.devices.ordered_search import OrderedSearch, worst_first
from dray_allocator.devices.usage import MOST_LOAD, load_of
from dray_allocator.nodes.equivalence import MOST_VALUES
from dray_allocator.nodes.predicates import fits
from dray_allocator.nodes.tie_break import tie
from dray_allocator.placement.fast_path.table_choice import choose
from dray_allocator.placement.pod_request import wanted
from dray_allocator.scoring.preference import card_key
from dray_allocator.scoring.topology import concerns

MODELS = (
    ("T4", "65", "16Gi"),
    ("A100", "312", "40Gi"),
    ("A100", "312", "80Gi"),
    ("H100", "989", "80Gi"),
)
PREFERENCES = (
    "tflops desc",
    "vram asc",
    "A100,T4",
    "H100 | vram desc",
    "vram asc | tflops desc",
    "",
)
NODES = tuple(f"n{number}" for number in range(6))


def preferring(*prefers: str, count: int = 1, capacity=None, constraints=()) -> ClaimSpec:
    """A request for each preference."""
    requests = [
        DeviceRequest(f"r{at}", names.DEVICE_CLASS, capacity=capacity or {}, count=count)
        for at in range(len(prefers))
    ]
    head = {"apiVersion": names.API_VERSION, "kind": names.LIMITS_KIND}
    config = [
        OpaqueConfig(names.DRIVER, {**head, "prefer": prefer}, (request.name,))
        for request, prefer in zip(requests, prefers, strict=True)
    ]
    return ClaimSpec(tuple(requests), tuple(constraints), tuple(config))


def some_spec(random: Random) -> ClaimSpec:
    same = Constraint(match_attribute=names.qualified("model"))
    return preferring(
        random.choice(PREFERENCES[:-1]),
        *random.choice(((), (), (random.choice(PREFERENCES),))),
        count=random.choice((1, 1, 2, 3)),
        capacity=random.choice(({}, {"virtual_tflops": "60", "virtual_vram": "10Gi"})),
        constraints=random.choice(((), (same,))),
    )


def joined(card, random: Random):
    """The card, which may say by what it is joined to others of its node."""
    of_card = {
        name: random.choice(("x", "y"))
        for name in (names.NVLINK_DOMAIN, names.NUMA_NODE, names.PCIE_ROOT)
        if random.random() < 0.3
    }
    return replace(card, attributes={**card.attributes, **of_card})


def fill(world, random: Random) -> None:
    for name in NODES:
        cards = [
            joined(world.a_card(f"{name}-{at}", model=model, tflops=tflops, vram=vram), random)
            for at, (model, tflops, vram) in enumerate(
                random.choices(MODELS, k=random.randrange(6))
            )
        ]
        made = world.a_slice(name, cards, generation=world.next())
        world.see(SliceObserved(revision=world.next(), slice=made))
        world.node(world.a_node(name, cpu_milli=random.choice((1_000, 64_000))))
    for number in range(random.randrange(10)):
        world.submit(world.a_pod(f"p{number}"), some_spec(random))


def best_of_all(state, want, mode: str):
    """The node and the devices that a search of every node finds best."""
    fills, topology = mode == "CompactFirst", want.pattern.placement.topology

    def rate(ask, card):
        load = load_of(card.shape.totals, state.device_usage.of(card.id))
        key = card_key(ask.preference, card.device) if ask.preference else ()
        return key, -load if fills else load, tie(card.name)

    found = []
    for name in state.facts.served_nodes("pool"):
        node = state.facts.nodes[name].node
        if not fits(want.pod.needs, node, state.assumed_pods.on(name)):
            continue
        cards = state.published.of(name).cards
        search, level = Reference(state, want.pattern.asks, rate), NOT_CONNECTED
        if concerns(want.pattern.asks, topology):
            shares, level = search.connected(name) or (None, level)
        else:
            shares = search.shares(name)
        if shares is not None:
            loads = [load_of(card.shape.totals, state.device_usage.of(card.id)) for card in cards]
            load = min(MOST_LOAD, sum(loads) // max(1, len(cards)))
            rank = MOST_LOAD - load if fills else load
            worth = worst_first(card_key(ask.preference, card.device) for ask, card in shares)
            devices = [card.name for _, card in shares]
            found.append(((worth, level, rank, tie(node.uid)), name, devices))
    return min(found)[1:] if found else None


@pytest.mark.parametrize("mode", ["CompactFirst", "LowLoadFirst"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_they_get_what_a_search_of_every_node_gives(make_world, mode, seed):
    random = Random(seed)
    world = make_world().open(mode)
    fill(world, random)
    state, domain = world.state, world.state.domains["pool"]
    for number in range(3):
        pod = world.a_pod(f"asks-{number}", needs=PodNeeds(cpu_milli=random.choice((0, 2_000))))
        world.tick()
        domain.serving_since = None  # Nobody decides meanwhile.
        world.submit(pod, some_spec(random))
        want = wanted(state, "pool", pod)
        choice = choose(state, domain, want)
        found = choice and (choice.node, [one.card.name for one in choice.shares])
        assert found == best_of_all(state, want, mode)
        world.serve()


def test_of_many_nodes_few_are_searched(world, monkeypatch):
    world.nodes(*(world.a_node(f"n{number}") for number in range(40)), model="A100")
    world.nodes(world.a_node("h"), model="H100", tflops="989", vram="80Gi")
    searched = []
    fill = OrderedSearch.fill
    monkeypatch.setattr(
        OrderedSearch, "fill", lambda *given: (searched.append(given), fill(*given))[1]
    )
    for number in range(3):
        world.submit(world.a_pod(f"p{number}"), preferring("tflops desc"))
    assert world.decisions()["p0"].node == "h"
    assert world.decisions()["p1"].node != "h"
    assert len(searched) == 3


def test_models_that_are_too_many_to_tell_apart_are_searched_one_by_one(world):
    for number in range(MOST_VALUES + 2):
        world.nodes(world.a_node(f"n{number}"), model=f"M{number}")
    world.submit(world.a_pod("p"), preferring("M7,M3"))
    assert world.decisions()["p"].node == "n7"
