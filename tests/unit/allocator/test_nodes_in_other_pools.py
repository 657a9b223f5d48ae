"""Pods of a pool hear which of the nodes that it selects are in other pools."""

from typing import Any

import pytest

from dray.api import names
from dray.messages.facts import NodeObserved


@pytest.fixture(params=["CompactFirst", names.KUBERNETES_COMPATIBLE])
def world(request, make_world) -> Any:
    return make_world().open(request.param)


def observe(world: Any, name: str, *, assigned: str, also: tuple[str, ...]) -> None:
    node = world.a_node(name, assigned if assigned == "pool" else "", assigned_pool=assigned)
    world.see(NodeObserved(revision=world.next(), node=node, also_selected_by=also))


def texts(world: Any) -> list[str]:
    return [str(reason) for reason in world.waits("p")[-1].reasons]


def test_a_pod_hears_which_nodes_its_pool_does_not_get(world):
    for name in ("n2", "n1"):
        observe(world, name, assigned="other", also=("pool",))
    world.submit(world.a_pod("p"))

    assert texts(world) == [
        "pool pool selects nodes that other pools have: n1 (other), n2 (other)",
        "pool pool has no node to allocate on",
    ]


def test_that_reason_comes_with_the_reasons_of_the_pools_nodes(world):
    world.nodes(world.a_node("n1"))
    observe(world, "n2", assigned="other", also=("pool",))
    world.submit(world.a_pod("p"), world.ask(tflops="10000"))

    first, *others = texts(world)
    assert first == "pool pool selects nodes that other pools have: n2 (other)"
    assert any("virtual_tflops" in line for line in others)


def test_who_waits_already_hears_of_it_with_the_next_tick(world):
    world.submit(world.a_pod("p"))
    assert texts(world) == ["pool pool has no node to allocate on"]

    observe(world, "n1", assigned="other", also=("pool",))
    world.tick()
    assert texts(world)[0] == "pool pool selects nodes that other pools have: n1 (other)"

    observe(world, "n1", assigned="other", also=())
    world.tick()
    assert texts(world) == ["pool pool has no node to allocate on"]


def test_a_node_that_is_gone_is_named_no_more(world):
    observe(world, "n1", assigned="other", also=("pool",))
    world.submit(world.a_pod("p"))
    world.node(world.a_node("n1", ""), deleted=True)
    world.tick()

    assert texts(world) == ["pool pool has no node to allocate on"]
