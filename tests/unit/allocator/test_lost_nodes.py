"""What pending pods hear when a node of their pool is deleted, or is no longer ready."""

from typing import Any

import pytest
from msgspec.structs import replace

from dray.api import names


@pytest.fixture(params=["CompactFirst", names.KUBERNETES_COMPATIBLE])
def world(request, make_world) -> Any:
    """Two nodes with two cards each, and a pod that waits for more than a card has."""
    world = make_world().open(request.param)
    world.nodes(world.a_node("n1"), world.a_node("n2"), cards=2)
    world.submit(world.a_pod("p"), world.ask(tflops="10000"))
    assert any("of 4 devices" in text for text in texts(world))
    return world


def texts(world: Any) -> list[str]:
    return [str(reason) for reason in world.waits("p")[-1].reasons]


def test_a_deleted_node_and_its_cards_count_no_more_with_the_next_tick(world):
    world.node(world.a_node("n2"), deleted=True)
    world.tick()
    assert any("of 2 devices" in text for text in texts(world))
    assert not any("n2" in text for text in texts(world))


def test_without_nodes_that_is_the_reason(world):
    for name in ("n1", "n2"):
        world.node(world.a_node(name), deleted=True)
    world.tick()
    assert texts(world) == ["pool pool has no node to allocate on"]


def test_a_node_that_is_not_ready_is_the_reason_with_the_next_tick(world):
    for name in ("n1", "n2"):
        world.node(replace(world.a_node(name), ready=False))
    world.tick()
    assert "not ready: 2 of 2 nodes" in texts(world)


def test_changed_counts_without_a_lost_node_are_recorded_only_after_a_while(world):
    recorded = len(world.waits("p"))
    world.nodes(world.a_node("n3"), cards=2)
    world.tick()
    assert len(world.waits("p")) == recorded
    world.tick(world.state.options.waiting_repeat_s)
    assert any("of 6 devices" in text for text in texts(world))
