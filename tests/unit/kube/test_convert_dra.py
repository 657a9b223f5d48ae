"""Kubernetes' JSON as complete values of Dynamic Resource Allocation, and back."""

import pytest

from dray.api.claims import Constraint
from dray.api.devices import DeviceId, OpaqueConfig, RequestPolicy, Version
from dray.api.dra.asks import DeviceToleration, Holding
from dray.api.dra.nodes import NodeSelector, Requirement, Term
from dray.api.dra.results import AllocationResult, DeviceResult
from dray.api.errors import InvalidInputError
from dray.kube.convert_dra_claims import allocation_to, claim_from, holdings_from
from dray.kube.convert_dra_slices import slice_from

SLICE = {
    "metadata": {"name": "s"},
    "spec": {
        "driver": "d.x",
        "pool": {"name": "p", "generation": 3, "resourceSliceCount": 2},
        "perDeviceNodeSelection": True,
        "sharedCounters": [{"name": "card", "counters": {"m": {"value": "4Gi"}}}],
        "devices": [
            {
                "name": "a",
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "zone", "operator": "In", "values": ["b"]}
                            ],
                            "matchFields": [
                                {"key": "metadata.name", "operator": "NotIn", "values": ["n"]}
                            ],
                        }
                    ]
                },
                "attributes": {
                    "one": {"int": 1},
                    "yes": {"bool": False},
                    "text": {"string": ""},
                    "v": {"version": "1.0.0"},
                    "list": {"strings": ["x", "y"]},
                    "empty": {},
                },
                "capacity": {
                    "m": {
                        "value": 4,
                        "requestPolicy": {
                            "default": "1",
                            "validRange": {"min": "1", "max": "4", "step": "1"},
                        },
                    },
                    "n": {
                        "value": "8Gi",
                        "requestPolicy": {"default": "1Gi", "validValues": ["1Gi", "2Gi"]},
                    },
                },
                "allowMultipleAllocations": True,
                "consumesCounters": [{"counterSet": "card", "counters": {"m": {"value": "1"}}}],
                "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
                "bindsToNode": True,
                "bindingConditions": [],
            }
        ],
    },
}


def test_a_slice_keeps_everything_that_decides():
    found = slice_from(SLICE)
    (device,) = found.devices
    assert (found.generation, found.slice_count, found.per_device_reach) == (3, 2, True)
    assert found.counter_sets[0].counters == {"m": "4Gi"}
    assert device.attributes == {
        "one": 1,
        "yes": False,
        "text": "",
        "v": Version("1.0.0"),
        "list": ("x", "y"),
        "empty": None,
    }
    assert device.capacity["m"].value == "4"
    assert device.capacity["m"].policy == RequestPolicy("1", (), "1", "4", "1")
    assert device.capacity["n"].policy == RequestPolicy("1Gi", ("1Gi", "2Gi"))
    assert found.reach_of(device).selector == NodeSelector(
        (
            Term(
                (Requirement("zone", "In", ("b",)),),
                (Requirement("metadata.name", "NotIn", ("n",)),),
            ),
        )
    )
    assert (device.binding_conditions, device.binding_failure_conditions) == ((), None)


def test_a_claim_is_read_with_the_api_servers_defaults():
    exactly = {"deviceClassName": "c", "capacity": {"requests": {"m": "1"}}}
    both = [
        {"name": "a", "deviceClassName": "c", "count": 2},
        {"name": "b", "deviceClassName": "c", "allocationMode": "All"},
    ]
    found = claim_from(
        {
            "metadata": {"name": "n", "namespace": "ns", "uid": "u"},
            "spec": {
                "devices": {
                    "requests": [
                        {"name": "r", "exactly": exactly},
                        {"name": "s", "firstAvailable": both},
                    ],
                    "constraints": [{"requests": ["r"], "matchAttribute": "d.x/m"}],
                    "config": [
                        {"requests": ["r"], "opaque": {"driver": "d.x", "parameters": {"a": 1}}}
                    ],
                }
            },
        }
    )
    assert (str(found), found.uid) == ("ns/n", "u")
    first, second = found.requests
    assert (first.exactly.mode, first.exactly.count, first.exactly.capacity) == (
        "ExactCount",
        1,
        {"m": "1"},
    )
    assert [(one.mode, one.count) for one in second.first_available] == [
        ("ExactCount", 2),
        ("All", 0),
    ]
    assert found.constraints == (Constraint(("r",), "d.x/m", None),)
    assert found.config == (OpaqueConfig("d.x", {"a": 1}, ("r",), "FromClaim"),)


def test_what_a_claim_holds_is_read_from_its_status():
    results = [
        {"request": "r", "driver": "d.x", "pool": "p", "device": "a"},
        {
            "driver": "d.x",
            "pool": "p",
            "device": "b",
            "shareID": "u",
            "consumedCapacity": {"m": "1"},
        },
        {"driver": "d.x", "pool": "p", "device": "c", "adminAccess": True},
    ]
    allocation = {"devices": {"results": results}}
    assert list(holdings_from({"status": {"allocation": allocation}})) == [
        Holding("d.x", "p", "a"),
        Holding("d.x", "p", "b", is_share=True, consumed={"m": "1"}),
        Holding("d.x", "p", "c", admin_access=True),
    ]
    assert list(holdings_from({})) == []


def test_an_allocation_is_written_as_its_status_takes_it():
    device = DeviceResult(
        "r/s",
        DeviceId("d.x", "p", "a"),
        share_id="u",
        consumed={"m": "1"},
        admin_access=True,
        tolerations=(DeviceToleration("k", "Exists", seconds=0),),
        binding_conditions=("up",),
        binding_failure_conditions=("down",),
    )
    selector = NodeSelector((Term((Requirement("zone", "Exists"),)),))
    config = OpaqueConfig("d.x", {"a": 1}, ("r",), "FromClass")
    assert allocation_to(AllocationResult((device,), (config,), selector)) == {
        "devices": {
            "results": [
                {
                    "request": "r/s",
                    "driver": "d.x",
                    "pool": "p",
                    "device": "a",
                    "adminAccess": True,
                    "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 0}],
                    "bindingConditions": ["up"],
                    "bindingFailureConditions": ["down"],
                    "shareID": "u",
                    "consumedCapacity": {"m": "1"},
                }
            ],
            "config": [
                {
                    "source": "FromClass",
                    "requests": ["r"],
                    "opaque": {"driver": "d.x", "parameters": {"a": 1}},
                }
            ],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
        },
    }


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"name": 1}, "devices[0].name is int, expected a string"),
        ({"name": "a", "attributes": []}, "attributes is list, expected an object"),
        ({"name": "a", "attributes": {"x": {"int": True}}}, "[x].int is bool, expected an integer"),
        ({"name": "a", "attributes": {"x": {"int": 2**63}}}, "[x].int exceeds 64 bits"),
        ({"name": "a", "attributes": {"x": {"ints": 3}}}, "[x].ints is no list"),
        ({"name": "a", "capacity": {"m": {"value": True}}}, "value is bool, expected a quantity"),
        ({"name": "a", "taints": [None]}, "taints[0] is null, expected an object"),
        ({"name": "a", "bindingConditions": [1]}, "bindingConditions[0] is int, expected a string"),
    ],
)
def test_a_field_of_another_type_is_named_with_its_place(device, expected):
    spec = SLICE["spec"] | {"devices": [device]}
    with pytest.raises(InvalidInputError) as refused:
        slice_from(SLICE | {"spec": spec}, "slices[0]")
    assert str(refused.value).startswith("slices[0].spec.devices[0].")
    assert expected in str(refused.value)
