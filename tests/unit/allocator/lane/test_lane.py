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


def test_all_devices_of_a_node_are_had_or_none(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a"), lane.device("b"))
    lane.submit("every", lane.request(allocationMode="All"))
    assert lane.got("every") == ["gpu=a", "gpu=b"]

    lane.submit("again", lane.request(allocationMode="All"))
    assert "in use: 2 of 2 devices" in lane.told("again")


def test_all_over_a_pool_that_is_not_whole_is_no_fit_and_says_so(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a"), count=2)
    lane.submit("p", lane.request(allocationMode="All"))
    assert "is currently being updated" in lane.told("p")


def test_the_first_alternative_that_is_available_is_taken(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a", "H100"), lane.device("b", "MIG"), driver=NVIDIA)
    either = lane.first_of(lane.request("big", NVIDIA, **LARGE), lane.request("small", NVIDIA))
    lane.submit("p", either)
    assert lane.got("p") == ["gpu/big=a"]
    lane.submit("q", either)
    assert lane.got("q") == ["gpu/small=b"]


def test_a_node_with_the_alternative_most_wanted_comes_first(lane: Any) -> None:
    for node, model in (("n1", "MIG"), ("n2", "MIG"), ("n3", "H100"), ("n4", "MIG")):
        lane.node(node)
        lane.publish(node, lane.device(f"of-{node}", model), driver=NVIDIA)
    lane.submit(
        "p", lane.first_of(lane.request("big", NVIDIA, **LARGE), lane.request("small", NVIDIA))
    )
    assert lane.got("p") == ["gpu/big=of-n3"]


def test_whoever_watches_devices_uses_none(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a"))
    lane.submit("user", lane.request())
    lane.submit("watcher", lane.request(allocationMode="All", adminAccess=True))
    assert lane.got("watcher") == ["gpu=a"]
    assert lane.allocation("watcher").devices[0].admin_access
    assert lane.world.state.device_usage.of(lane.allocation("user").devices[0].id).shares == 1
    assert not lane.world.oversold()


def test_partitions_draw_on_the_same_counters(lane: Any, partitions: Any, counters: Any) -> None:
    lane.node("n1")
    lane.publish("sets", driver=NVIDIA, pool="n1", count=2, nodeName="n1", sharedCounters=counters)
    lane.publish("n1", *partitions, driver=NVIDIA, count=2)

    lane.submit("p", lane.request(of=NVIDIA, **MIG))
    assert lane.got("p") == ["gpu=half-0"]
    lane.submit("whole", lane.request(of=NVIDIA, **LARGE))
    assert lane.waits("whole")
    lane.submit("q", lane.request(of=NVIDIA, **MIG))
    assert lane.got("q") == ["gpu=half-1"]
    lane.submit("r", lane.request(of=NVIDIA, **MIG))
    assert "in use: 2 of 2 devices" in lane.told("r")

    for name in ("r", "p", "q"):
        lane.world.claim(lane.world.state.facts.claims[f"claim-{name}"], deleted=True)
    assert not lane.waits("whole")


def test_a_plain_claim_falls_back_on_devices_that_the_board_does_not_read(
    lane: Any, partitions: Any, counters: Any
) -> None:
    lane.node("n1")
    lane.publish("sets", driver=NVIDIA, pool="n1", count=2, nodeName="n1", sharedCounters=counters)
    lane.publish("n1", *partitions, driver=NVIDIA, count=2)
    lane.publish("n1", lane.device("plain"))
    for name in ("a", "b"):
        lane.submit(name, lane.request(selectors=[]))
    assert {lane.got(name)[0] for name in ("a", "b")} == {"gpu=plain", "gpu=whole"}


def test_where_the_board_has_looked_only_odd_nodes_are_tried_again(
    lane: Any, partitions: Any, counters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def noted(published: Any, usage: Any, node: str) -> Any:
        tried.append(node)
        return visible_devices(published, usage, node)

    monkeypatch.setattr(node_equivalence_cache, "visible_devices", noted)
    for node in ("n1", "n2", "n3"):
        lane.node(node)
        lane.publish(node, lane.device("plain"))
    lane.publish("sets", driver=NVIDIA, pool="n2", count=2, nodeName="n2", sharedCounters=counters)
    lane.publish("n2", *partitions, driver=NVIDIA, count=2)
    lane.submit("p", lane.request(of=NVIDIA, **MIG))
    assert lane.got("p") == ["gpu=half-0"]
    assert tried == ["n2"]


def test_several_drivers_serve_one_pod(lane: Any) -> None:
    lane.node("n1")
    lane.node("n2")
    lane.publish("n1", lane.device("card"))
    lane.publish("n2", lane.device("card"))
    lane.publish("n2", lane.device("mig", "MIG"), driver=NVIDIA)
    ours = {"selectors": [{"cel": {"expression": f'device.driver == "{names.DRIVER}"'}}]}
    lane.submit("p", lane.request("one", allocationMode="All", **ours), lane.request("two", NVIDIA))
    assert lane.world.decisions()["p"].node == "n2"


def test_a_device_of_all_nodes_leaves_the_claim_unbound_to_a_node(lane: Any) -> None:
    lane.node("n1")
    lane.publish("fabric", lane.device("port"), driver=NVIDIA, allNodes=True)
    lane.submit("p", lane.request(of=NVIDIA))

    decision, allocation = lane.world.decisions()["p"], lane.allocation("p")
    assert (decision.node, allocation.node, allocation.selector) == ("n1", "", None)
    lane.world.tick()
    assert not lane.world.sent(), "its node serves: nothing is voided"


def test_a_node_selector_is_written_as_the_driver_states_it(lane: Any) -> None:
    lane.node("n1", labels={"rack": "a"})
    lane.node("n2", labels={"rack": "b"})
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["b"]}]}
    lane.publish(
        "fabric", lane.device("port"), driver=NVIDIA, nodeSelector={"nodeSelectorTerms": [term]}
    )
    lane.submit("p", lane.request(of=NVIDIA))

    assert lane.world.decisions()["p"].node == "n2"
    written = allocation_to(lane.allocation("p"))
    assert written["nodeSelector"] == {"nodeSelectorTerms": [term]}
    assert allocation_from(written) == lane.allocation("p")


def test_a_claim_that_is_allocated_already_says_where_the_pod_may_go(lane: Any) -> None:
    lane.node("n1", labels={"rack": "a"})
    lane.node("n2", labels={"rack": "b"})
    for node in ("n1", "n2"):
        lane.publish(node, lane.device("card"))
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["b"]}]}
    held = {"request": "net", "driver": "net.example", "pool": "rack", "device": "port"}
    allocation = {"devices": {"results": [held]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    lane.claim("shared", {"spec": {}, "status": {"allocation": allocation}})

    pod = lane.world.a_pod("p")
    also = replace(pod.claims[0], reference="net", claim="shared-gpu")
    lane.submit("p", lane.request(), pod=replace(pod, claims=(*pod.claims, also)))
    assert lane.world.decisions()["p"].node == "n2"


def test_pods_that_share_a_claim_go_where_it_is(lane: Any) -> None:
    for node in ("n1", "n2", "n3"):
        lane.node(node)
        lane.publish(node, lane.device("own-a"), lane.device("own-b"))
        lane.publish(f"{node}-net", lane.device("port"), driver=NVIDIA, nodeName=node, pool=node)
    shared = {"requests": [lane.request("net", NVIDIA)]}
    lane.claim("shared", {"spec": {"devices": shared}})

    ours = {"selectors": [{"cel": {"expression": f'device.driver == "{names.DRIVER}"'}}]}
    for name in ("p", "q"):
        pod = lane.world.a_pod(name)
        also = replace(pod.claims[0], reference="net", claim="shared-gpu")
        lane.submit(name, lane.request(**ours), pod=replace(pod, claims=(*pod.claims, also)))
    assert lane.waits("q"), "the shared claim is on its way"

    lane.world.commit(lane.world.decisions()["p"])
    decided = lane.world.decisions()
    assert decided["q"].node == decided["p"].node
    assert [one.uid for one in decided["q"].claims] == ["claim-q"]


def test_a_list_attribute_can_be_matched(lane: Any) -> None:
    lane.node("n1")
    lane.world.see(ClusterObserved(revision=1, list_attributes=True))
    for name, links in (("a", [1, 2]), ("b", [3]), ("c", [2, 3])):
        device = {"name": name, "attributes": {"links": {"ints": links}}}
        lane.publish(f"n1-{name}", device, nodeName="n1", pool=name)
    lane.submit(
        "p", lane.request(count=2), constraints=[{"matchAttribute": f"{names.DRIVER}/links"}]
    )
    assert lane.got("p") == ["gpu=a", "gpu=c"]


def test_configuration_of_class_and_claim_is_copied_in_order(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a"))
    opaque = {"driver": names.DRIVER, "parameters": {"channel": 1}}
    lane.submit("p", lane.request(allocationMode="All"), config=[{"opaque": opaque}])
    written = allocation_to(lane.allocation("p"))
    assert written["devices"]["config"] == [{"source": "FromClaim", "opaque": opaque}]


def test_shares_are_taken_of_the_card_that_is_fullest(lane: Any) -> None:
    lane.node("n1")
    capacity = {"memory": {"value": "40Gi"}}
    cards = [
        lane.device(name, capacity=capacity, allowMultipleAllocations=True) for name in ("a", "b")
    ]
    lane.publish("n1", *cards)
    ten = {"capacity": {"requests": {"memory": "10Gi"}}}
    for name in ("p", "q"):
        lane.submit(name, lane.first_of(lane.request("share", **ten)))
    assert lane.got("p") == lane.got("q") == ["gpu/share=a"]
    first, second = (lane.allocation(name).devices[0] for name in ("p", "q"))
    assert first.consumed == {"memory": "10Gi"}
    assert first.share_id
    assert first.share_id != second.share_id


def test_drivers_that_are_not_drays_are_left_alone(make_world: Any, lane: Any) -> None:
    other = type(lane)(make_world().open())
    other.node("n1")
    other.publish("n1", other.device("a"), driver=NVIDIA)
    other.submit("p", other.request(of=NVIDIA, allocationMode="All"))
    assert "no slice with devices" in other.told("p")


@pytest.mark.parametrize("amount", ["-1Gi", "lots"])
def test_alternatives_that_make_no_sense_are_named(lane: Any, amount: str) -> None:
    lane.node("n1")
    odd = lane.request("odd", capacity={"requests": {"memory": amount}})
    lane.submit("p", lane.first_of(lane.request("any"), odd))
    assert amount in lane.told("p")
