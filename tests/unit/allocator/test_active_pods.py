"""What an autoscaler of allocators counts: pods that more allocators would help."""

from typing import Any

from prometheus_client import CollectorRegistry
from tests.unit.allocator.groups.support import KEY, member, see_group

from dray_allocator.service.telemetry import AllocatorMetrics
from dray_allocator.values.options import AllocatorOptions

NEVER = AllocatorOptions(writer="one", unconfirmed_records=0)
"""Of an allocator whose records are never confirmed: it tries no pod."""


def shown(world: Any, gauge: str) -> float | None:
    registry = CollectorRegistry()
    AllocatorMetrics(world.state, registry)
    return registry.get_sample_value(f"dray_allocator_{gauge}")


def test_pods_that_fit_nowhere_wait_and_are_not_active(world: Any) -> None:
    world.nodes(world.a_node("n1"))
    for name in ("a", "b"):
        world.submit(world.a_pod(name), world.ask("1000000"))

    assert shown(world, "waiting_pods") == 2
    assert shown(world, "active_pods") == 0


def test_pods_are_active_until_they_are_tried(make_world: Any) -> None:
    world = make_world(NEVER).open()
    world.nodes(world.a_node("n1"))
    for name in ("a", "b"):
        world.submit(world.a_pod(name))

    assert shown(world, "active_pods") == 2


def test_all_pods_of_a_group_are_active_until_it_is_tried(world: Any) -> None:
    world.nodes(world.a_node("n1"))
    see_group(world, 2)
    for name in ("a", "b"):
        member(world, name, world.ask("1000000"))
    assert shown(world, "active_pods") == 0

    world.state.domains["pool"].groups.activate(KEY)
    assert shown(world, "active_pods") == 2
