"""Facts of releases that carried claims and slices twice are read as those of this release."""

import json
from typing import Any

import msgspec
import pytest

from dray.api.claims import DeviceRequest, DeviceToleration
from dray.api.devices import (
    NEWER_FIELDS,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    ResourceSlice,
    Taint,
)
from dray.api.nodes import (
    NOWHERE,
    NodeSelection,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from dray.kube.convert import slice_from
from dray.messages.base import decode, encode
from dray.messages.facts import ClaimObserved, SliceObserved

TOLERATION = {"key": "k", "operator": "Exists", "value": "", "effect": "", "seconds": 5}


def asked(name: str, **more: Any) -> dict[str, Any]:
    """A request as ``in_full`` had it."""
    return {
        "name": name,
        "device_class": "c",
        "selectors": [],
        "mode": "ExactCount",
        "count": 1,
        "admin_access": None,
        "tolerations": [],
        "capacity": None,
        "derived_attributes": [],
    } | more


def claim_requests(*in_full: dict[str, Any]) -> tuple[DeviceRequest, ...]:
    thin = [{"name": "a", "device_class": "c", "tolerations": [TOLERATION | {"operator": "Equal"}]}]
    spec = {"requests": thin, "constraints": [], "config": [], "in_full": in_full}
    claim = {"uid": "u", "namespace": "n", "name": "c", "resource_version": 1, "pool": ""}
    fact = {"revision": 1, "claim": claim | {"spec": spec}}
    found = decode(json.dumps(fact).encode(), ClaimObserved)
    assert found.claim.spec.in_full == ()
    assert decode(encode(found, source="").payload, ClaimObserved) == found
    return found.claim.spec.requests


def slice_of(thin: dict[str, Any], in_full: dict[str, Any] | None) -> ResourceSlice:
    known = {"name": "s", "uid": "u", "driver": "d", "pool": "p", "generation": 2, "slice_count": 3}
    fact = {"revision": 1, "slice": known | thin}
    if in_full is not None:
        whole = {name: value for name, value in known.items() if name != "uid"}
        fact["in_full"] = whole | {"per_device_reach": None, "counter_sets": []} | in_full
    found = decode(json.dumps(fact).encode(), SliceObserved)
    assert found.in_full is None
    assert decode(encode(found, source="").payload, SliceObserved) == found
    return found.slice


def test_all_of_a_claim_counts() -> None:
    exactly = asked(
        "a", mode="All", count=0, admin_access=True, tolerations=[TOLERATION], capacity={"m": "1"}
    )
    alternatives = [asked("x", count=2, selectors=["true"]), asked("y", derived_attributes=["z"])]
    assert claim_requests(
        {"name": "a", "exactly": exactly, "first_available": []},
        {"name": "b", "exactly": None, "first_available": alternatives},
        {"name": "odd", "exactly": None, "first_available": []},
    ) == (
        DeviceRequest(
            "a",
            "c",
            mode="All",
            count=0,
            capacity={"m": "1"},
            tolerations=(DeviceToleration("k", "Exists", seconds=5),),
            admin_access=True,
        ),
        DeviceRequest(
            "b",
            "",
            first_available=(
                DeviceRequest("x", "c", ("true",), count=2),
                DeviceRequest("y", "c", derived_attributes=("z",)),
            ),
        ),
        DeviceRequest("odd", ""),
    )


def test_all_of_a_slice_of_one_node_counts() -> None:
    thin = {"name": "gpu", "attributes": {"v": 1}, "unsupported": ["consumesCounters"]}
    whole = {
        "name": "gpu",
        "attributes": {"v": 1, "all": ["a", "b"], "none": None},
        "capacity": {"m": {"value": "1Gi", "policy": None}},
        "allow_multiple_allocations": True,
        "consumes": [{"counter_set": "s", "counters": {"c": "1"}, "compatibility_groups": []}],
        "taints": [{"key": "k", "value": "", "effect": "NoExecute"}],
        "reach": {"node": "", "all_nodes": False, "selector": None},
        "binds_to_node": True,
        "binding_conditions": ["up"],
        "binding_failure_conditions": None,
    }
    found = slice_of(
        {"node": "n", "devices": [thin]},
        {
            "reach": {"node": "n", "all_nodes": False, "selector": None},
            "devices": [whole],
            "counter_sets": [{"name": "s", "counters": {"c": "4"}}],
        },
    )
    (device,) = found.devices
    assert (found.uid, found.node, found.nodes is NOWHERE) == ("u", "n", True)
    assert found.counter_sets == (CounterSet("s", {"c": "4"}),)
    assert device.attributes == {"v": 1, "all": ("a", "b"), "none": None}
    assert device.consumes == (DeviceCounterConsumption("s", {"c": "1"}),)
    assert device.taints == (Taint("k", "", "NoExecute"),)
    assert (device.unsupported, device.binds_to_node) == ((), True)
    assert (device.binding_conditions, device.binding_failure_conditions) == (("up",), None)


def test_the_nodes_of_a_slice_of_several_count() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = [{"expressions": [expression], "fields": []}]
    found = slice_of(
        {"node": "", "devices": []},
        {
            "reach": {"node": "", "all_nodes": False, "selector": {"terms": terms}},
            "devices": [],
        },
    )
    term = NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("a",)),))
    assert found.reach == NodeSelection(selector=NodeSelector((term,)))


def test_of_a_slice_without_the_rest_no_device_is_allocated_that_lacks_something() -> None:
    thin = {"name": "gpu", "unsupported": ["consumesCounters"]}
    assert slice_of({"node": "n", "devices": [thin]}, None).devices == (
        Device("gpu", unsupported=("consumesCounters",)),
    )


def published(**device: Any) -> dict[str, Any]:
    spec = {
        "driver": "d",
        "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu", **device}],
    }
    found = slice_from({"metadata": {"name": "s", "uid": "u"}, "spec": spec})
    payload = encode(SliceObserved(revision=1, slice=found), source="").payload
    (written,) = msgspec.json.decode(payload)["slice"]["devices"]
    return written


def test_a_plain_device_is_written_as_earlier_releases_wrote_it() -> None:
    assert published(attributes={"a": {"int": 1}}) == {
        "name": "gpu",
        "attributes": {"a": 1},
        "capacity": {},
        "allow_multiple_allocations": False,
        "taints": [],
        "unsupported": [],
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]},
        {"bindsToNode": True},
        {"bindingConditions": ["up"]},
        {"allNodes": True},
        {"attributes": {"a": {"ints": [1]}}},
    ],
)
def test_an_earlier_release_allocates_no_device_with_fields_that_it_passes_over(
    fields: dict[str, Any],
) -> None:
    assert published(**fields)["unsupported"] == [NEWER_FIELDS]
