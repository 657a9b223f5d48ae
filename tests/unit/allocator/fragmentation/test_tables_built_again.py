"""After facts were lost tables are built again, with classes of cards that may be others."""

import gc
from weakref import ref

from dray.api import names
from dray.cel.reads import Read
from dray.messages.facts import PodObserved
from dray_allocator.core.handle import handle
from dray_allocator.nodes.equivalence_keys import attributes
from dray_allocator.placement.pod_request import wanted
from dray_allocator.scoring.fragmentation import nodes as states
from dray_allocator.scoring.fragmentation.nodes import PoolNodes
from dray_allocator.scoring.fragmentation.score import NodeWorths
from dray_allocator.scoring.fragmentation.workload_model import WorkloadModel
from dray_allocator.values.events import FactsLost

MODE = "FragmentationAware"
SMALL = f'device.attributes["{names.DRIVER}"].model != "A100"'


def of_models(make_world, *models):
    """A pool with a node of one card per model."""
    world = make_world().open(MODE)
    for model in models:
        world.nodes(world.a_node(model.lower()), cards=1, model=model)
    return world


def learn(world, model):
    table, nodes = world.state.tables.of("pool"), world.state.facts.nodes
    return model.learn(table, world.state.selectors, lambda name: nodes[name].node.cpu_milli)


def numbers(table):
    return table.numbering, table.card_kinds.count


def takes(learned):
    """What the pods with 10m of cpu take of a card, per class."""
    return [pod.milli for pod in learned.pods if pod.cpu_milli == 10]


def test_models_are_distinguished_after_the_facts_were_lost(make_world):
    node_worths, before = NodeWorths(), of_models(make_world, "A100", "T4")
    learned = learn(before, WorkloadModel(None))
    node_worths.set(before.state.tables.of("pool"), learned)
    table = of_models(make_world, "A100", "T4").state.tables.of("pool")
    table.distinguish_cards(attributes([Read("attributes", names.DRIVER, "uuid")]))
    assert numbers(table) == numbers(before.state.tables.of("pool"))

    node_worths.set(table, learned)

    assert table.card_kinds.distinguishes(("attribute", names.DRIVER, "model"))


def test_what_pods_asked_for_is_looked_up_among_the_kinds_that_there_are(make_world):
    before = of_models(make_world, "A100", "T4")
    before.claim(before.a_claim("p", before.ask(selectors=(SMALL,))))
    before.state.domains["pool"].serving_since = None
    before.see(PodObserved(revision=before.next(), pod=before.a_pod("p")))
    asks = wanted(before.state, "pool", before.state.facts.pods["p"]).pattern.asks
    model, fresh = WorkloadModel(None), WorkloadModel(None)
    for one in (model, fresh):
        one.observe(b"p", 10, asks)
    learn(before, model)
    after = of_models(make_world, "A100", "L4")

    again, expected = learn(after, model), learn(after, fresh)

    assert numbers(after.state.tables.of("pool")) == numbers(before.state.tables.of("pool"))
    assert again.classes == expected.classes
    assert takes(again) == takes(expected) == [(0, 400)]


def test_numbered_states_of_nodes_have_a_limit(make_world, monkeypatch):
    monkeypatch.setattr(states, "_MOST_NUMBERS", 8)
    world = of_models(make_world, "A100", "T4")
    table = world.state.tables.of("pool")
    known, counts = PoolNodes(table, ("A100", "T4")), []

    for cpu_milli in range(1000, 1040):
        world.node(world.a_node("t4", cpu_milli=cpu_milli))
        assert world.state.tables.of("pool") is table
        known.catch_up()
        fresh = PoolNodes(table, ("A100", "T4"))
        fresh.catch_up()
        rows = range(table.height)
        assert [known.key_of(row) for row in rows] == [fresh.key_of(row) for row in rows]
        counts.append(len(known._keys))

    assert max(counts) == 8 + 4 * table.height + 1
    assert known.generation == 2, "keys were numbered again"


def test_tables_of_lost_facts_are_referenced_by_nothing(make_world):
    world = of_models(make_world, "A100", "T4")
    world.submit(world.a_pod("p"), world.ask())
    table = ref(world.state.tables.of("pool"))
    handle(world.state, FactsLost())
    gc.collect()
    assert table() is None
