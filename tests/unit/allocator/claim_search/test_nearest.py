"""Reasons of the search name the device that misses by least, and what it has."""

from typing import Any

import pytest

from dray.api import names
from dray.api.devices import DeviceId
from dray.api.pods import PodNeeds
from dray.reasons import Nearest
from dray_allocator.nodes.tie_break import tie

NVIDIA = "gpu.nvidia.com"
OF = f'device.attributes["{NVIDIA}"]'
MEMORY = f'device.capacity["{NVIDIA}"].memory.compareTo(quantity("60Gi")) >= 0'
H100 = {"selectors": [{"cel": {"expression": f'{OF}.model == "H100"'}}]}


def reasons_of(kube: Any, pod: str) -> dict[str, Any]:
    """Why it waits, by what fails."""
    assert kube.waits(pod)
    return {reason.what: reason for reason in kube.world.waits(pod)[-1].reasons}


def of_memory(kube: Any, amount: str) -> Any:
    """A request for memory that only the search decides about."""
    return kube.first_of(kube.request("a", NVIDIA, capacity={"requests": {"memory": amount}}))


def memory(amount: str, *, is_shared: bool = True) -> Any:
    """A card of this memory."""
    return {"capacity": {"memory": {"value": amount}}, "allowMultipleAllocations": is_shared}


def first_of(nodes: list[str], devices: list[str]) -> str:
    """Of equal devices with these names on all nodes, the one that is named."""
    node = min(nodes, key=lambda name: tie(f"uid-{name}"))
    device = min(devices, key=lambda name: tie(str(DeviceId(NVIDIA, node, name))))
    return f"{node}/{device}"


def test_of_a_clause_it_is_the_device_on_which_the_fewest_fail(kube: Any) -> None:
    for node, model, amount in (
        ("n1", "A100", "40Gi"),
        ("n2", "A100", "80Gi"),
        ("n3", "H100", "40Gi"),
        ("n4", "H100", "48Gi"),
    ):
        kube.node(node)
        kube.publish(node, kube.device("a", model, **memory(amount)), driver=NVIDIA)
    both = {"selectors": [{"cel": {"expression": f'{OF}.model == "H100" && {MEMORY}'}}]}
    kube.submit("p", kube.first_of(kube.request("a", NVIDIA, **both)))
    found = reasons_of(kube, "p")
    assert found[f'{OF}.model == "H100"'].nearest == Nearest("n2/a", '"A100"')
    of_memory = found[MEMORY]
    assert (of_memory.failed, of_memory.of) == (3, 4)
    near = min(("n3", "n4"), key=lambda name: tie(f"uid-{name}"))
    assert of_memory.nearest.where == f"{near}/a"
    assert of_memory.nearest.seen == {"n3": "40Gi", "n4": "48Gi"}[near]


def test_selectors_of_class_and_request_count_together(kube: Any) -> None:
    """A device of another driver misses twice, the other once."""
    kube.node("n1")
    kube.publish("n1", kube.device("ours"))
    kube.publish("n1", kube.device("theirs"), driver=NVIDIA)
    kube.submit("p", kube.first_of(kube.request("a", NVIDIA, **H100)))
    found = reasons_of(kube, "p")
    assert found[f'device.driver == "{NVIDIA}"'].nearest == Nearest("n1/ours", f'"{names.DRIVER}"')
    assert found[f'{OF}.model == "H100"'].nearest == Nearest("n1/theirs", '"A100"')


def test_a_clause_that_can_t_be_evaluated_tells_the_nearest_device_s_error(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", {"name": "bare"}, driver=NVIDIA)
    kube.submit("p", kube.first_of(kube.request("a", NVIDIA, **H100)))
    found = reasons_of(kube, "p")[f'{OF}.model == "H100"']
    assert (found.kind, found.nearest) == ("clause-error", Nearest("n1/bare"))
    assert "no such key: model" in found.detail


def test_of_a_capacity_it_is_the_device_with_the_most_left(kube: Any) -> None:
    for node in ("n1", "n2", "n3"):
        kube.node(node)
        kube.publish(node, kube.device("a", **memory("40Gi")), driver=NVIDIA)
    for number, amount in enumerate(("30Gi", "25Gi", "35Gi")):
        kube.submit(f"holds-{number}", of_memory(kube, amount))
    kube.submit("p", of_memory(kube, "20Gi"))
    found = reasons_of(kube, "p")["not enough free memory (20Gi asked)"]
    node = kube.world.decisions()["holds-1"].node
    assert found.nearest == Nearest(f"{node}/a", "15Gi")
    assert f": 3 of 3 devices; nearest: {node}/a has 15Gi" in kube.reasons_of("p")


def test_of_what_no_device_is_large_enough_for_it_is_the_largest(kube: Any) -> None:
    for node, amount in (("n1", "40Gi"), ("n2", "80Gi"), ("n3", "48Gi")):
        kube.node(node)
        kube.publish(node, kube.device("a", **memory(amount)), driver=NVIDIA)
    kube.submit("p", of_memory(kube, "100Gi"))
    sockets = kube.request("a", NVIDIA, capacity={"requests": {"sockets": "1"}})
    kube.submit("q", kube.first_of(sockets))
    assert reasons_of(kube, "p")["not enough free memory (100Gi asked)"].nearest == Nearest(
        "n2/a", "80Gi"
    )
    assert (
        reasons_of(kube, "q")[
            "too small, or without such a capacity (sockets 1 asked)"
        ].nearest.seen
        == "no sockets"
    )


def test_of_a_counter_it_is_the_device_that_has_the_most_of_it_left(
    kube: Any, partitions: Any, counters: Any
) -> None:
    for node in ("n1", "n2"):
        kube.node(node)
        of_pool = {"driver": NVIDIA, "pool": node, "count": 2, "nodeName": node}
        kube.publish(f"{node}-sets", sharedCounters=counters, **of_pool)
        kube.publish(node, *partitions, driver=NVIDIA, count=2)
    half = {"selectors": [{"cel": {"expression": f'{OF}.model == "MIG"'}}]}
    for name in ("a", "b", "c"):
        kube.submit(name, kube.request(of=NVIDIA, **half))
    kube.submit("p", kube.request(of=NVIDIA, **H100))
    found = reasons_of(kube, "p")["not enough free counter memory of card (80Gi asked)"]
    node = kube.world.decisions()["c"].node
    assert (found.kind, found.failed, found.of) == ("capacity", 2, 2)
    assert found.nearest == Nearest(f"{node}/whole", "40Gi")


@pytest.mark.parametrize("order", [["n1", "n2", "n3"], ["n3", "n2", "n1"], ["n2", "n3", "n1"]])
def test_of_equal_ones_it_is_the_first_by_ties_in_whatever_order_they_came(
    kube: Any, order: list[str]
) -> None:
    for node in order:
        kube.node(node)
        cards = [kube.device(name) for name in ("a", "b", "c")]
        kube.publish(node, *cards, driver=NVIDIA)
    kube.submit("p", kube.first_of(kube.request("a", NVIDIA, **H100)))
    found = reasons_of(kube, "p")[f'{OF}.model == "H100"']
    assert (found.failed, found.nearest.where) == (9, first_of(order, ["a", "b", "c"]))


def test_of_a_taint_one_is_named_and_of_use_none(kube: Any) -> None:
    kube.node("n1")
    taint = {"key": "repair", "value": "", "effect": "NoSchedule"}
    kube.publish("n1", kube.device("a", taints=[taint]), kube.device("b"), driver=NVIDIA)
    kube.submit("holds", kube.first_of(kube.request("a", NVIDIA)))
    kube.submit("p", kube.first_of(kube.request("a", NVIDIA)))
    found = reasons_of(kube, "p")
    assert found["device taint repair=:NoSchedule is not tolerated"].nearest == Nearest("n1/a")
    assert found["in use"].nearest is None
    assert "nearest" not in kube.reasons_of("p")


def test_devices_of_all_nodes_are_counted_once_and_named(kube: Any) -> None:
    for node in ("n1", "n2"):
        kube.node(node)
    kube.publish("fabric", kube.device("port"), driver=NVIDIA, pool="rack", allNodes=True)
    kube.submit("p", kube.first_of(kube.request("a", NVIDIA, **H100)))
    found = reasons_of(kube, "p")[f'{OF}.model == "H100"']
    assert (found.failed, found.of, found.nearest) == (1, 1, Nearest("rack/port", '"A100"'))


def test_of_nodes_it_is_the_one_with_the_most_left(kube: Any) -> None:
    for node, milli in (("n1", 100), ("n2", 200)):
        kube.node(node, cpu_milli=milli)
        kube.publish(node, kube.device("a"), driver=NVIDIA)
    pod = kube.world.a_pod("p", needs=PodNeeds(cpu_milli=300))
    kube.submit("p", kube.first_of(kube.request("a", NVIDIA)), pod=pod)
    assert reasons_of(kube, "p")["not enough free cpu (300m asked)"].nearest == Nearest(
        "n2", "200m"
    )
