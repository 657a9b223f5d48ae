"""Slices, classes, pools and policies as domain values."""

import pytest

from dray.api.devices import (
    Capacity,
    CounterSet,
    DeviceCounterConsumption,
    OpaqueConfig,
    RequestPolicy,
    Taint,
    Version,
)
from dray.api.nodes import (
    NOWHERE,
    NodeSelection,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from dray.kube.convert import class_from, policy_from, pool_from, slice_from, time_from, time_to


def test_a_slice_is_read() -> None:
    read = slice_from(
        {
            "metadata": {"name": "s", "uid": "su"},
            "spec": {
                "driver": "d",
                "nodeName": "n1",
                "pool": {"name": "n1", "generation": 3, "resourceSliceCount": 2},
                "devices": [
                    {
                        "name": "g0",
                        "attributes": {
                            "model": {"string": "H100"},
                            "index": {"int": 0},
                            "healthy": {"bool": False},
                            "driver": {"version": "1.2.3"},
                        },
                        "capacity": {
                            "vram": {"value": "80Gi"},
                            "virtual": {
                                "value": "80Gi",
                                "requestPolicy": {
                                    "default": "80Gi",
                                    "validRange": {"min": "1", "step": "1Mi"},
                                },
                            },
                        },
                        "allowMultipleAllocations": True,
                        "taints": [{"key": "k", "effect": "NoSchedule"}],
                    }
                ],
            },
        }
    )
    assert (read.driver, read.pool, read.generation, read.slice_count, read.node) == (
        "d",
        "n1",
        3,
        2,
        "n1",
    )
    (device,) = read.devices
    assert device.attributes == {
        "model": "H100",
        "index": 0,
        "healthy": False,
        "driver": Version("1.2.3"),
    }
    assert device.capacity["vram"] == Capacity("80Gi")
    assert device.capacity["virtual"].policy == RequestPolicy("80Gi", minimum="1", step="1Mi")
    assert device.allow_multiple_allocations
    assert device.taints == (Taint("k"),)
    assert device.unsupported == ()


def test_everything_that_decides_is_read() -> None:
    requirement = {"key": "zone", "operator": "In", "values": ["b"]}
    field = {"key": "metadata.name", "operator": "NotIn", "values": ["n"]}
    terms = [{"matchExpressions": [requirement], "matchFields": [field]}]
    device = {
        "name": "a",
        "nodeSelector": {"nodeSelectorTerms": terms},
        "attributes": {"list": {"strings": ["x"]}, "v": {"versions": ["1.0.0"]}, "empty": {}},
        "consumesCounters": [{"counterSet": "card", "counters": {"m": {"value": "1"}}}],
        "bindsToNode": True,
        "bindingConditions": [],
    }
    spec = {
        "driver": "d",
        "pool": {"name": "p", "generation": 3, "resourceSliceCount": 2},
        "perDeviceNodeSelection": True,
        "sharedCounters": [{"name": "card", "counters": {"m": {"value": "4Gi"}}}],
        "devices": [device],
    }
    read = slice_from({"metadata": {"name": "s"}, "spec": spec})
    term = NodeSelectorTerm(
        (NodeSelectorRequirement("zone", "In", ("b",)),),
        (NodeSelectorRequirement("metadata.name", "NotIn", ("n",)),),
    )
    reach = NodeSelection(selector=NodeSelector((term,)))
    (found,) = read.devices
    assert (read.node, read.per_device_reach, read.reach.is_stated) == ("", True, False)
    assert read.counter_sets == (CounterSet("card", {"m": "4Gi"}),)
    assert found.attributes == {"list": ("x",), "v": (Version("1.0.0"),), "empty": None}
    assert found.consumes == (DeviceCounterConsumption("card", {"m": "1"}),)
    assert (found.binds_to_node, read.reach_of(found)) == (True, reach)
    assert (found.binding_conditions, found.binding_failure_conditions) == ((), None)


@pytest.mark.parametrize(
    ("nodes", "reach"),
    [
        ({"nodeName": "n"}, NodeSelection("n")),
        ({"allNodes": True}, NodeSelection(all_nodes=True)),
        ({}, NOWHERE),
    ],
)
def test_the_nodes_of_a_slice_are_read(nodes: dict[str, object], reach: NodeSelection) -> None:
    spec = {"driver": "d", "pool": {"name": "p"}} | nodes
    assert slice_from({"metadata": {"name": "s"}, "spec": spec}).reach == reach


def test_a_class_is_read() -> None:
    read = class_from(
        {
            "metadata": {"name": "k"},
            "spec": {
                "selectors": [{"cel": {"expression": "device.driver == 'd'"}}],
                "config": [{"opaque": {"driver": "d", "parameters": {}}}],
            },
        }
    )
    assert read.selectors == ("device.driver == 'd'",)
    assert read.config == (OpaqueConfig("d", {}, (), "FromClass"),)


def test_a_pool_is_read_and_defaulted() -> None:
    plain = pool_from({"metadata": {"name": "p", "uid": "u"}, "spec": {}})
    assert (plain.owner, plain.default_qos, plain.tflops_ratio) == ("dray", "medium", "1")
    assert plain.node_selector is None
    full = pool_from(
        {
            "metadata": {"name": "p"},
            "spec": {
                "owner": "kube-scheduler",
                "dedicated": True,
                "default": True,
                "schedulingConfigTemplate": "t",
                "nodeSelector": {},
                "qosConfig": {"defaultQoS": "high"},
                "capacityConfig": {"oversubscription": {"tflopsRatio": 1.5, "vramRatio": "2"}},
                "isolation": "soft",
                "allowedNamespaces": ["a"],
            },
        }
    )
    assert (full.owner, full.dedicated, full.default, full.template) == (
        "kube-scheduler",
        True,
        True,
        "t",
    )
    assert full.node_selector == {}
    assert (full.default_qos, full.tflops_ratio, full.vram_ratio) == ("high", "1.5", "2")
    assert (full.isolation, full.allowed_namespaces) == ("soft", ("a",))


def test_a_policy_is_read_and_defaulted() -> None:
    plain = policy_from({"metadata": {"name": "t"}})
    assert (plain.dra_enabled, plain.claim_template, plain.placement) == (
        False,
        "tensor-fusion-gpu-template",
        "",
    )
    full = policy_from(
        {
            "metadata": {"name": "t", "generation": 4},
            "spec": {
                "dra": {"enable": True, "resourceClaimTemplateName": "mine"},
                "placement": {
                    "mode": "LowLoadFirst",
                    "node": "binpack",
                    "gpu": "spread",
                    "weights": {"cpu": 1, "vram": 5},
                    "topology": "hard",
                },
            },
        }
    )
    assert (full.dra_enabled, full.claim_template, full.placement, full.version) == (
        True,
        "mine",
        "LowLoadFirst",
        4,
    )
    levels = (full.placement_node, full.placement_gpu, full.placement_topology)
    assert levels == ("binpack", "spread", "hard")
    assert full.placement_weights == {"cpu": 1, "vram": 5}


def test_times_keep_whole_seconds() -> None:
    assert time_from(time_to(1_700_000_000.7)) == 1_700_000_000.0
    assert time_from("2026-01-01T00:00:00.5Z") - time_from("2026-01-01T00:00:00Z") == 0.5
    assert time_from(None) == 0.0
