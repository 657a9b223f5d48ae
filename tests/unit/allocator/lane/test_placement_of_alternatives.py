"""Claims with alternatives follow the placement's weights, preferences and link levels."""

from typing import Any

import pytest

from dray.api import names
from dray.api.pods import PodNeeds
from dray_allocator.values.options import AllocatorOptions


def on_numa(lane: Any, name: str, model: str, numa: int) -> Any:
    """A device of a model on a NUMA node."""
    device = lane.device(name, model)
    device["attributes"][names.NUMA_NODE] = {"int": numa}
    return device


def of_model(lane: Any, name: str, model: str) -> Any:
    """An alternative for two devices of a model."""
    is_it = f'device.attributes["{names.DRIVER}"].model == "{model}"'
    return lane.request(name, count=2, selectors=[{"cel": {"expression": is_it}}])


def prefers(model: str, request: str) -> Any:
    """A request's preference in the claim's configuration."""
    parameters = {"kind": names.LIMITS_KIND, names.PREFER_FIELD: model}
    return {"requests": [request], "opaque": {"driver": names.DRIVER, "parameters": parameters}}


def test_connected_devices_are_preferred(lane: Any) -> None:
    lane.node("n1")
    devices = [on_numa(lane, name, "A", numa) for name, numa in (("a", 0), ("b", 1), ("c", 1))]
    lane.publish("n1", *devices)
    lane.submit("p", lane.first_of(lane.request("two", count=2)))
    assert lane.got("p") == ["gpu/two=b", "gpu/two=c"]


def test_an_alternative_that_is_wanted_more_comes_before_a_better_link_level(lane: Any) -> None:
    lane.node("n1")
    kinds = (("a", "A", 0), ("b", "A", 1), ("c", "B", 0), ("d", "B", 0))
    lane.publish("n1", *(on_numa(lane, *kind) for kind in kinds))
    lane.submit("p", lane.first_of(of_model(lane, "first", "A"), of_model(lane, "second", "B")))
    assert lane.got("p") == ["gpu/first=a", "gpu/first=b"]


def test_each_request_has_its_own_preference(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", *(lane.device(name, model) for name, model in ("aA", "bA", "cB")))
    one = lane.first_of(lane.request("one"), name="x")
    other = lane.first_of(lane.request("one"), name="y")
    lane.submit("p", one, other, config=[prefers("A", "x"), prefers("B", "y")])
    assert lane.got("p") == ["x/one=a", "y/one=c"]


@pytest.mark.parametrize("fuller", ["n1", "n2"])
def test_weights_of_cpu_count(make_world: Any, lane: Any, fuller: str) -> None:
    world = make_world(AllocatorOptions(writer="one"))
    now = type(lane)(world.open("CompactFirst", placement_weights={"cpu": 1}))
    for node in ("n1", "n2"):
        now.node(node, cpu_milli=2_000 if node == fuller else 64_000)
        now.publish(node, now.device(f"of-{node}"))
    pod = now.world.a_pod("p", needs=PodNeeds(cpu_milli=1_000))
    now.submit("p", now.first_of(now.request("one")), pod=pod)
    assert now.world.decisions()["p"].node == fuller
