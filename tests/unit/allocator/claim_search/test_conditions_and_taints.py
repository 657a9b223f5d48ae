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


def conditions_of(kube: Any, pod: str) -> Any:
    """What the pod's allocation says that its device is waited for by."""
    written = allocation_to(kube.allocation(pod))["devices"]["results"][0]
    return {name: written[name] for name in CONDITIONS}


def test_devices_with_binding_conditions_are_for_everybody_where_the_server_keeps_them(
    kube: Any,
) -> None:
    kube.node("n1")
    kube.world.see(ClusterObserved(revision=1, waits_for_devices=True))
    kube.publish("n1", kube.device("a", **CONDITIONS), kube.device("b", **CONDITIONS))
    kube.submit("alone", kube.request())
    assert conditions_of(kube, "alone") == CONDITIONS

    gated = replace(kube.world.a_pod("gated"), scheduler="default-scheduler", gated=True)
    kube.submit("gated", kube.request(), pod=gated)
    assert conditions_of(kube, "gated") == CONDITIONS


@pytest.mark.parametrize(
    "dropped", ["binding_conditions", "allocation_timestamp", "waits_for_devices"]
)
def test_elsewhere_they_are_for_pods_that_kube_scheduler_binds(kube: Any, dropped: str) -> None:
    kube.node("n1")
    says = ClusterObserved(revision=1, waits_for_devices=True)
    kube.world.see(msgspec.structs.replace(says, **{dropped: False}))
    kube.publish("n1", kube.device("a", **CONDITIONS))
    kube.submit("alone", kube.request())
    assert "has binding conditions, and dray binds" in kube.reasons_of("alone")

    gated = replace(kube.world.a_pod("gated"), scheduler="default-scheduler", gated=True)
    kube.submit("gated", kube.request(), pod=gated)
    assert conditions_of(kube, "gated") == CONDITIONS


def test_tolerations_are_repeated_in_the_result_with_their_seconds(kube: Any) -> None:
    kube.node("n1")
    taint = {"key": "faulty", "value": "", "effect": "NoExecute"}
    kube.publish("n1", kube.device("a", taints=[taint]))
    kube.submit("p", kube.request())
    kube.submit(
        "q",
        kube.request(tolerations=[{"key": "faulty", "operator": "Exists", "tolerationSeconds": 5}]),
    )
    assert "device taint faulty=:NoExecute is not tolerated" in kube.reasons_of("p")
    written = allocation_to(kube.allocation("q"))["devices"]["results"][0]
    assert written["tolerations"] == [
        {"key": "faulty", "operator": "Exists", "tolerationSeconds": 5}
    ]


def test_the_owner_taint_excludes_no_pod_of_dray(kube: Any) -> None:
    kube.node("n1")
    owner = {"key": names.OWNER_TAINT, "value": "dray", "effect": "NoSchedule"}
    kube.publish("n1", kube.device("a", taints=[owner]))
    kube.submit("p", kube.request(allocationMode="All"))
    assert kube.got("p") == ["gpu=a"]


def rule(world: Any, *, deleted: bool = False, key: str = "repair", **selects: str) -> None:
    """A DeviceTaintRule as Kubernetes has it."""
    taint = {"key": key, "value": "", "effect": "NoSchedule"}
    obj = {"metadata": {"name": "rule"}, "spec": {"deviceSelector": selects, "taint": taint}}
    world.see(TaintRuleObserved(revision=world.next(), rule=taint_rule_from(obj), deleted=deleted))


@pytest.mark.parametrize("in_full", [False, True], ids=["table", "search"])
def test_rules_taint_devices_as_long_as_they_are_there(kube: Any, in_full: bool) -> None:
    wish = kube.first_of(kube.request("any")) if in_full else kube.request()
    kube.node("n1")
    kube.publish("n1", kube.device("a"), kube.device("b"))
    rule(kube.world, driver=names.DRIVER, device="a")
    kube.publish("n2", kube.device("a"))
    kube.submit("p", wish)
    kube.submit("q", wish)
    assert [one.rpartition("=")[2] for one in kube.got("p")] == ["b"]
    assert "device taint repair=:NoSchedule is not tolerated" in kube.reasons_of("q")
    kube.node("n2")
    assert kube.waits("q")

    rule(kube.world, deleted=True)
    assert not kube.waits("q")


def test_a_rule_with_the_owner_taint_keeps_away_others_alone(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a"), driver=NVIDIA)
    rule(kube.world, key=names.OWNER_TAINT, driver=NVIDIA)
    kube.submit("p", kube.request(of=NVIDIA))
    assert kube.got("p") == ["gpu=a"]


def test_a_rule_about_other_devices_changes_nothing(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a"))
    rule(kube.world, driver=names.DRIVER, pool="n1", device="b")
    kube.submit("p", kube.request())
    assert kube.got("p") == ["gpu=a"]


def test_an_unhealthy_device_is_not_allocated(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a"), kube.device("b"))
    kube.world.see(InventoryObserved(revision=1, node="n1", driver=names.DRIVER, unhealthy=("a",)))
    kube.submit("p", kube.first_of(kube.request("any")))
    assert kube.got("p") == ["gpu/any=b"]
    kube.submit("q", kube.first_of(kube.request("any")))
    assert "unhealthy: 1 of 2 devices" in kube.reasons_of("q")
