"""After the facts were lost tables are made anew, and as many kinds of cards may be other ones."""

import gc
from weakref import ref

from dray.api import names
from dray.cel.reads import Read
from dray.messages.facts import PodObserved
from dray_allocator.core.handle import handle
from dray_allocator.nodes.equivalence_keys import attributes
from dray_allocator.placement.pod_request import wanted
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


def learn(world, learner):
    table, nodes = world.state.tables.of("pool"), world.state.facts.nodes
    return learner.learn(table, world.state.selectors, lambda name: nodes[name].node.cpu_milli)


def numbers(table):
    return table.numbering, table.card_kinds.count


def takes(learned):
    """What the pods with 10m of cpu take of a card, per class."""
    return [pod.milli for pod in learned.pods if pod.cpu_milli == 10]


def test_models_are_told_apart_where_something_else_was_before(make_world):
    landscapes, before = NodeWorths(), of_models(make_world, "A100", "T4")
    learned = learn(before, WorkloadModel(None))
    landscapes.set(before.state.tables.of("pool"), learned)
    table = of_models(make_world, "A100", "T4").state.tables.of("pool")
    table.tell_cards_apart(attributes([Read("attributes", names.DRIVER, "uuid")]))
    assert numbers(table) == numbers(before.state.tables.of("pool"))

    landscapes.set(table, learned)

    assert table.card_kinds.tells(("attribute", names.DRIVER, "model"))


def test_what_pods_asked_for_is_looked_up_among_the_kinds_that_there_are(make_world):
    before = of_models(make_world, "A100", "T4")
    before.claim(before.a_claim("p", before.ask(selectors=(SMALL,))))
    before.state.domains["pool"].fence = None
    before.see(PodObserved(revision=before.next(), pod=before.a_pod("p")))
    asks = wanted(before.state, "pool", before.state.facts.pods["p"]).asks
    learner, fresh = WorkloadModel(None), WorkloadModel(None)
    for one in (learner, fresh):
        one.see(b"p", 10, asks)
    learn(before, learner)
    after = of_models(make_world, "A100", "L4")

    again, expected = learn(after, learner), learn(after, fresh)

    assert numbers(after.state.tables.of("pool")) == numbers(before.state.tables.of("pool"))
    assert again.classes == expected.classes
    assert takes(again) == takes(expected) == [(0, 400)]


def test_boards_that_went_with_the_facts_are_held_by_nothing(make_world):
    world = of_models(make_world, "A100", "T4")
    world.submit(world.a_pod("p"), world.ask())
    table = ref(world.state.tables.of("pool"))
    handle(world.state, FactsLost())
    gc.collect()
    assert table() is None
