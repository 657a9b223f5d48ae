"""Claims with alternatives follow the placement's weights, preferences and link levels."""

from typing import Any

import pytest

from dray.api import names
from dray.api.pods import PodNeeds
from dray_allocator.values.options import AllocatorOptions


def on_numa(kube: Any, name: str, model: str, numa: int) -> Any:
    """A device of a model on a NUMA node."""
    device = kube.device(name, model)
    device["attributes"][names.NUMA_NODE] = {"int": numa}
    return device


def of_model(kube: Any, name: str, model: str) -> Any:
    """An alternative for two devices of a model."""
    is_it = f'device.attributes["{names.DRIVER}"].model == "{model}"'
    return kube.request(name, count=2, selectors=[{"cel": {"expression": is_it}}])


def prefers(model: str, request: str) -> Any:
    """A request's preference in the claim's configuration."""
    parameters = {"kind": names.LIMITS_KIND, names.PREFER_FIELD: model}
    return {"requests": [request], "opaque": {"driver": names.DRIVER, "parameters": parameters}}


def test_connected_devices_are_preferred(kube: Any) -> None:
    kube.node("n1")
    devices = [on_numa(kube, name, "A", numa) for name, numa in (("a", 0), ("b", 1), ("c", 1))]
    kube.publish("n1", *devices)
    kube.submit("p", kube.first_of(kube.request("two", count=2)))
    assert kube.got("p") == ["gpu/two=b", "gpu/two=c"]


def test_an_alternative_that_is_wanted_more_comes_before_a_better_link_level(kube: Any) -> None:
    kube.node("n1")
    kinds = (("a", "A", 0), ("b", "A", 1), ("c", "B", 0), ("d", "B", 0))
    kube.publish("n1", *(on_numa(kube, *kind) for kind in kinds))
    kube.submit("p", kube.first_of(of_model(kube, "first", "A"), of_model(kube, "second", "B")))
    assert kube.got("p") == ["gpu/first=a", "gpu/first=b"]


def test_each_request_has_its_own_preference(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", *(kube.device(name, model) for name, model in ("aA", "bA", "cB")))
    one = kube.first_of(kube.request("one"), name="x")
    other = kube.first_of(kube.request("one"), name="y")
    kube.submit("p", one, other, config=[prefers("A", "x"), prefers("B", "y")])
    assert kube.got("p") == ["x/one=a", "y/one=c"]


@pytest.mark.parametrize("fuller", ["n1", "n2"])
def test_weights_of_cpu_count(make_world: Any, kube: Any, fuller: str) -> None:
    world = make_world(AllocatorOptions(writer="one"))
    now = type(kube)(world.open("CompactFirst", placement_weights={"cpu": 1}))
    for node in ("n1", "n2"):
        now.node(node, cpu_milli=2_000 if node == fuller else 64_000)
        now.publish(node, now.device(f"of-{node}"))
    pod = now.world.a_pod("p", needs=PodNeeds(cpu_milli=1_000))
    now.submit("p", now.first_of(now.request("one")), pod=pod)
    assert now.world.decisions()["p"].node == fuller
