"""What the table doesn't read is decided by structured parameters, and written in full."""

from typing import Any

import pytest
from msgspec.structs import replace

from dray.api import names
from dray.kube.convert import allocation_from, allocation_to
from dray.messages.facts import (
    ClusterObserved,
)
from dray_allocator.devices.visible_devices import visible_devices
from dray_allocator.placement import node_equivalence_cache

NVIDIA = "gpu.nvidia.com"
MIG = {"selectors": [{"cel": {"expression": f'device.attributes["{NVIDIA}"].model == "MIG"'}}]}
LARGE = {"selectors": [{"cel": {"expression": f'device.attributes["{NVIDIA}"].model == "H100"'}}]}


def test_all_devices_of_a_node_are_had_or_none(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a"), kube.device("b"))
    kube.submit("every", kube.request(allocationMode="All"))
    assert kube.got("every") == ["gpu=a", "gpu=b"]

    kube.submit("again", kube.request(allocationMode="All"))
    assert "in use: 2 of 2 devices" in kube.reasons_of("again")


def test_all_over_a_pool_that_is_not_whole_is_no_fit_and_says_so(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a"), count=2)
    kube.submit("p", kube.request(allocationMode="All"))
    assert "is currently being updated" in kube.reasons_of("p")


def test_the_first_alternative_that_is_available_is_taken(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a", "H100"), kube.device("b", "MIG"), driver=NVIDIA)
    either = kube.first_of(kube.request("big", NVIDIA, **LARGE), kube.request("small", NVIDIA))
    kube.submit("p", either)
    assert kube.got("p") == ["gpu/big=a"]
    kube.submit("q", either)
    assert kube.got("q") == ["gpu/small=b"]


def test_a_node_with_the_alternative_most_wanted_comes_first(kube: Any) -> None:
    for node, model in (("n1", "MIG"), ("n2", "MIG"), ("n3", "H100"), ("n4", "MIG")):
        kube.node(node)
        kube.publish(node, kube.device(f"of-{node}", model), driver=NVIDIA)
    kube.submit(
        "p",
        kube.first_of(kube.request("big", NVIDIA, **LARGE), kube.request("small", NVIDIA)),
    )
    assert kube.got("p") == ["gpu/big=of-n3"]


def test_a_claim_with_admin_access_uses_no_devices(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a"))
    kube.submit("user", kube.request())
    kube.submit("watcher", kube.request(allocationMode="All", adminAccess=True))
    assert kube.got("watcher") == ["gpu=a"]
    assert kube.allocation("watcher").devices[0].admin_access
    assert kube.world.state.device_usage.of(kube.allocation("user").devices[0].id).shares == 1
    assert not kube.world.oversold()


def test_partitions_draw_on_the_same_counters(kube: Any, partitions: Any, counters: Any) -> None:
    kube.node("n1")
    kube.publish("sets", driver=NVIDIA, pool="n1", count=2, nodeName="n1", sharedCounters=counters)
    kube.publish("n1", *partitions, driver=NVIDIA, count=2)

    kube.submit("p", kube.request(of=NVIDIA, **MIG))
    assert kube.got("p") == ["gpu=half-0"]
    kube.submit("whole", kube.request(of=NVIDIA, **LARGE))
    assert kube.waits("whole")
    kube.submit("q", kube.request(of=NVIDIA, **MIG))
    assert kube.got("q") == ["gpu=half-1"]
    kube.submit("r", kube.request(of=NVIDIA, **MIG))
    assert "in use: 2 of 2 devices" in kube.reasons_of("r")

    for name in ("r", "p", "q"):
        kube.world.claim(kube.world.state.facts.claims[f"claim-{name}"], deleted=True)
    assert not kube.waits("whole")


def test_a_plain_claim_falls_back_on_devices_that_the_node_table_does_not_read(
    kube: Any, partitions: Any, counters: Any
) -> None:
    kube.node("n1")
    kube.publish("sets", driver=NVIDIA, pool="n1", count=2, nodeName="n1", sharedCounters=counters)
    kube.publish("n1", *partitions, driver=NVIDIA, count=2)
    kube.publish("n1", kube.device("plain"))
    for name in ("a", "b"):
        kube.submit(name, kube.request(selectors=[]))
    assert {kube.got(name)[0] for name in ("a", "b")} == {"gpu=plain", "gpu=whole"}


def test_after_the_node_table_only_nodes_with_other_devices_are_tried(
    kube: Any, partitions: Any, counters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def noted(published: Any, usage: Any, node: str) -> Any:
        tried.append(node)
        return visible_devices(published, usage, node)

    monkeypatch.setattr(node_equivalence_cache, "visible_devices", noted)
    for node in ("n1", "n2", "n3"):
        kube.node(node)
        kube.publish(node, kube.device("plain"))
    kube.publish("sets", driver=NVIDIA, pool="n2", count=2, nodeName="n2", sharedCounters=counters)
    kube.publish("n2", *partitions, driver=NVIDIA, count=2)
    kube.submit("p", kube.request(of=NVIDIA, **MIG))
    assert kube.got("p") == ["gpu=half-0"]
    assert tried == ["n2"]


def test_several_drivers_serve_one_pod(kube: Any) -> None:
    kube.node("n1")
    kube.node("n2")
    kube.publish("n1", kube.device("card"))
    kube.publish("n2", kube.device("card"))
    kube.publish("n2", kube.device("mig", "MIG"), driver=NVIDIA)
    ours = {"selectors": [{"cel": {"expression": f'device.driver == "{names.DRIVER}"'}}]}
    kube.submit("p", kube.request("one", allocationMode="All", **ours), kube.request("two", NVIDIA))
    assert kube.world.decisions()["p"].node == "n2"


def test_a_device_of_all_nodes_leaves_the_claim_unbound_to_a_node(kube: Any) -> None:
    kube.node("n1")
    kube.publish("fabric", kube.device("port"), driver=NVIDIA, allNodes=True)
    kube.submit("p", kube.request(of=NVIDIA))

    decision, allocation = kube.world.decisions()["p"], kube.allocation("p")
    assert (decision.node, allocation.node, allocation.selector) == ("n1", "", None)
    kube.world.tick()
    assert not kube.world.sent(), "its node serves: nothing is voided"


def test_a_node_selector_is_written_as_the_driver_states_it(kube: Any) -> None:
    kube.node("n1", labels={"rack": "a"})
    kube.node("n2", labels={"rack": "b"})
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["b"]}]}
    kube.publish(
        "fabric", kube.device("port"), driver=NVIDIA, nodeSelector={"nodeSelectorTerms": [term]}
    )
    kube.submit("p", kube.request(of=NVIDIA))

    assert kube.world.decisions()["p"].node == "n2"
    written = allocation_to(kube.allocation("p"))
    assert written["nodeSelector"] == {"nodeSelectorTerms": [term]}
    assert allocation_from(written) == kube.allocation("p")


def test_a_claim_that_is_allocated_already_says_where_the_pod_may_go(kube: Any) -> None:
    kube.node("n1", labels={"rack": "a"})
    kube.node("n2", labels={"rack": "b"})
    for node in ("n1", "n2"):
        kube.publish(node, kube.device("card"))
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["b"]}]}
    held = {"request": "net", "driver": "net.example", "pool": "rack", "device": "port"}
    allocation = {"devices": {"results": [held]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    kube.claim("shared", {"spec": {}, "status": {"allocation": allocation}})

    pod = kube.world.a_pod("p")
    also = replace(pod.claims[0], reference="net", claim="shared-gpu")
    kube.submit("p", kube.request(), pod=replace(pod, claims=(*pod.claims, also)))
    assert kube.world.decisions()["p"].node == "n2"


def test_pods_that_share_a_claim_go_where_it_is(kube: Any) -> None:
    for node in ("n1", "n2", "n3"):
        kube.node(node)
        kube.publish(node, kube.device("own-a"), kube.device("own-b"))
        kube.publish(f"{node}-net", kube.device("port"), driver=NVIDIA, nodeName=node, pool=node)
    shared = {"requests": [kube.request("net", NVIDIA)]}
    kube.claim("shared", {"spec": {"devices": shared}})

    ours = {"selectors": [{"cel": {"expression": f'device.driver == "{names.DRIVER}"'}}]}
    for name in ("p", "q"):
        pod = kube.world.a_pod(name)
        also = replace(pod.claims[0], reference="net", claim="shared-gpu")
        kube.submit(name, kube.request(**ours), pod=replace(pod, claims=(*pod.claims, also)))
    assert kube.waits("q"), "the shared claim is on its way"

    kube.world.commit(kube.world.decisions()["p"])
    decided = kube.world.decisions()
    assert decided["q"].node == decided["p"].node
    assert [one.uid for one in decided["q"].claims] == ["claim-q"]


def test_a_list_attribute_can_be_matched(kube: Any) -> None:
    kube.node("n1")
    kube.world.see(ClusterObserved(revision=1, list_attributes=True))
    for name, links in (("a", [1, 2]), ("b", [3]), ("c", [2, 3])):
        device = {"name": name, "attributes": {"links": {"ints": links}}}
        kube.publish(f"n1-{name}", device, nodeName="n1", pool=name)
    kube.submit(
        "p", kube.request(count=2), constraints=[{"matchAttribute": f"{names.DRIVER}/links"}]
    )
    assert kube.got("p") == ["gpu=a", "gpu=c"]


def test_configuration_of_class_and_claim_is_copied_in_order(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a"))
    opaque = {"driver": names.DRIVER, "parameters": {"channel": 1}}
    kube.submit("p", kube.request(allocationMode="All"), config=[{"opaque": opaque}])
    written = allocation_to(kube.allocation("p"))
    assert written["devices"]["config"] == [{"source": "FromClaim", "opaque": opaque}]


def test_shares_are_taken_of_the_card_that_is_fullest(kube: Any) -> None:
    kube.node("n1")
    capacity = {"memory": {"value": "40Gi"}}
    cards = [
        kube.device(name, capacity=capacity, allowMultipleAllocations=True) for name in ("a", "b")
    ]
    kube.publish("n1", *cards)
    ten = {"capacity": {"requests": {"memory": "10Gi"}}}
    for name in ("p", "q"):
        kube.submit(name, kube.first_of(kube.request("share", **ten)))
    assert kube.got("p") == kube.got("q") == ["gpu/share=a"]
    first, second = (kube.allocation(name).devices[0] for name in ("p", "q"))
    assert first.consumed == {"memory": "10Gi"}
    assert first.share_id
    assert first.share_id != second.share_id


def test_drivers_that_are_not_drays_are_left_alone(make_world: Any, kube: Any) -> None:
    other = type(kube)(make_world().open())
    other.node("n1")
    other.publish("n1", other.device("a"), driver=NVIDIA)
    other.submit("p", other.request(of=NVIDIA, allocationMode="All"))
    assert "no slice with devices" in other.reasons_of("p")


@pytest.mark.parametrize("amount", ["-1Gi", "lots"])
def test_alternatives_that_make_no_sense_are_named(kube: Any, amount: str) -> None:
    kube.node("n1")
    odd = kube.request("odd", capacity={"requests": {"memory": amount}})
    kube.submit("p", kube.first_of(kube.request("any"), odd))
    assert amount in kube.reasons_of("p")
