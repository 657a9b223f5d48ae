"""Conditions, tolerations, taints and health of devices that the table doesn't read."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dray.api import names
from dray.kube.convert import allocation_to, taint_rule_from
from dray.messages.facts import (
    ClusterObserved,
    InventoryObserved,
    TaintRuleObserved,
)

NVIDIA = "gpu.nvidia.com"
CONDITIONS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}


def conditions_of(lane: Any, pod: str) -> Any:
    """What the pod's allocation says that its device is waited for by."""
    written = allocation_to(lane.allocation(pod))["devices"]["results"][0]
    return {name: written[name] for name in CONDITIONS}


def test_devices_with_binding_conditions_are_for_everybody_where_the_server_keeps_them(
    lane: Any,
) -> None:
    lane.node("n1")
    lane.world.see(ClusterObserved(revision=1, waits_for_devices=True))
    lane.publish("n1", lane.device("a", **CONDITIONS), lane.device("b", **CONDITIONS))
    lane.submit("alone", lane.request())
    assert conditions_of(lane, "alone") == CONDITIONS

    gated = replace(lane.world.a_pod("gated"), scheduler="default-scheduler", gated=True)
    lane.submit("gated", lane.request(), pod=gated)
    assert conditions_of(lane, "gated") == CONDITIONS


@pytest.mark.parametrize(
    "dropped", ["binding_conditions", "allocation_timestamp", "waits_for_devices"]
)
def test_elsewhere_they_are_for_pods_that_kube_scheduler_binds(lane: Any, dropped: str) -> None:
    lane.node("n1")
    says = ClusterObserved(revision=1, waits_for_devices=True)
    lane.world.see(msgspec.structs.replace(says, **{dropped: False}))
    lane.publish("n1", lane.device("a", **CONDITIONS))
    lane.submit("alone", lane.request())
    assert "has binding conditions, and dray binds" in lane.told("alone")

    gated = replace(lane.world.a_pod("gated"), scheduler="default-scheduler", gated=True)
    lane.submit("gated", lane.request(), pod=gated)
    assert conditions_of(lane, "gated") == CONDITIONS


def test_tolerations_are_repeated_in_the_result_with_their_seconds(lane: Any) -> None:
    lane.node("n1")
    taint = {"key": "ill", "value": "", "effect": "NoExecute"}
    lane.publish("n1", lane.device("a", taints=[taint]))
    lane.submit("p", lane.request())
    lane.submit(
        "q",
        lane.request(tolerations=[{"key": "ill", "operator": "Exists", "tolerationSeconds": 5}]),
    )
    assert "device taint ill=:NoExecute is not tolerated" in lane.told("p")
    written = allocation_to(lane.allocation("q"))["devices"]["results"][0]
    assert written["tolerations"] == [{"key": "ill", "operator": "Exists", "tolerationSeconds": 5}]


def test_the_owner_taint_keeps_nobody_of_drays_away(lane: Any) -> None:
    lane.node("n1")
    owner = {"key": names.OWNER_TAINT, "value": "dray", "effect": "NoSchedule"}
    lane.publish("n1", lane.device("a", taints=[owner]))
    lane.submit("p", lane.request(allocationMode="All"))
    assert lane.got("p") == ["gpu=a"]


def rule(world: Any, *, deleted: bool = False, key: str = "repair", **selects: str) -> None:
    """A DeviceTaintRule as Kubernetes has it."""
    taint = {"key": key, "value": "", "effect": "NoSchedule"}
    obj = {"metadata": {"name": "rule"}, "spec": {"deviceSelector": selects, "taint": taint}}
    world.see(TaintRuleObserved(revision=world.next(), rule=taint_rule_from(obj), deleted=deleted))


@pytest.mark.parametrize("in_full", [False, True], ids=["table", "lane"])
def test_rules_taint_devices_as_long_as_they_are_there(lane: Any, in_full: bool) -> None:
    wish = lane.first_of(lane.request("any")) if in_full else lane.request()
    lane.node("n1")
    lane.publish("n1", lane.device("a"), lane.device("b"))
    rule(lane.world, driver=names.DRIVER, device="a")
    lane.publish("n2", lane.device("a"))
    lane.submit("p", wish)
    lane.submit("q", wish)
    assert [one.rpartition("=")[2] for one in lane.got("p")] == ["b"]
    assert "device taint repair=:NoSchedule is not tolerated" in lane.told("q")
    lane.node("n2")
    assert lane.waits("q")

    rule(lane.world, deleted=True)
    assert not lane.waits("q")


def test_a_rule_with_the_owner_taint_keeps_away_others_alone(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a"), driver=NVIDIA)
    rule(lane.world, key=names.OWNER_TAINT, driver=NVIDIA)
    lane.submit("p", lane.request(of=NVIDIA))
    assert lane.got("p") == ["gpu=a"]


def test_a_rule_about_other_devices_changes_nothing(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a"))
    rule(lane.world, driver=names.DRIVER, pool="n1", device="b")
    lane.submit("p", lane.request())
    assert lane.got("p") == ["gpu=a"]


def test_an_ill_device_is_given_to_nobody(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a"), lane.device("b"))
    lane.world.see(InventoryObserved(revision=1, node="n1", driver=names.DRIVER, unhealthy=("a",)))
    lane.submit("p", lane.first_of(lane.request("any")))
    assert lane.got("p") == ["gpu/any=b"]
    lane.submit("q", lane.first_of(lane.request("any")))
    assert "unhealthy: 1 of 2 devices" in lane.told("q")
