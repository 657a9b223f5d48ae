"""Claims as domain values, and allocations back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.claims import (
    AllocatedDevice,
    Allocation,
    Constraint,
    DeviceRequest,
    DeviceTerms,
    DeviceToleration,
)
from dray.api.devices import DeviceId, OpaqueConfig
from dray.api.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dray.kube.convert import allocation_from, allocation_to, claim_from, status_to
from dray.kube.convert_claims import Consumer

POD = {"kind": "Pod", "name": "p", "uid": "pu", "controller": True}


def claim(**spec) -> dict:
    return {
        "metadata": {
            "uid": "u",
            "namespace": "n",
            "name": "c",
            "resourceVersion": "9",
            "labels": {"tensor-fusion.ai/gpupool": "pool"},
            "annotations": {
                "tensor-fusion.ai/decision": "1000002",
                "tensor-fusion.ai/void": "1000001",
            },
            "ownerReferences": [{"kind": "Job", "name": "j", "uid": "ju"}, POD],
        },
        "spec": {"devices": spec},
    }


def test_a_claim_is_read_with_what_dray_wrote_on_it() -> None:
    read = claim_from(claim(requests=[]))
    assert (read.uid, read.namespace, read.name, read.resource_version) == ("u", "n", "c", 9)
    assert (read.pool, read.pod_uid, read.pod_name) == ("pool", "pu", "p")
    assert (read.decision, read.void) == (1_000_002, 1_000_001)
    assert read.allocation is None
    assert not read.deleting


def test_annotations_that_are_not_attempts_count_as_none() -> None:
    body = claim(requests=[])
    body["metadata"]["annotations"] = {
        "tensor-fusion.ai/void": "-1",
        "tensor-fusion.ai/decision": "x",
    }
    read = claim_from(body)
    assert (read.decision, read.void) == (0, 0)


def test_requests_and_constraints_are_read() -> None:
    exactly = {
        "deviceClassName": "class",
        "selectors": [{"cel": {"expression": "true"}}],
        "allocationMode": "All",
        "adminAccess": True,
        "capacity": {"requests": {"vram": "16Gi"}},
        "tolerations": [{"key": "k", "operator": "Exists"}],
    }
    spec = claim_from(
        claim(
            requests=[{"name": "gpu", "exactly": exactly}],
            constraints=[
                {"requests": ["gpu"], "matchAttribute": "d/a"},
                {"distinctAttribute": "d/b"},
            ],
            config=[{"requests": ["gpu"], "opaque": {"driver": "d", "parameters": {"a": [1]}}}],
        )
    ).spec
    (request,) = spec.requests
    assert (request.mode, request.count, request.admin_access) == ("All", 1, True)
    assert request.selectors == ("true",)
    assert request.capacity == {"vram": "16Gi"}
    assert request.tolerations == (DeviceToleration("k", "Exists"),)
    assert spec.constraints == (
        Constraint(("gpu",), match_attribute="d/a"),
        Constraint((), distinct_attribute="d/b"),
    )
    assert spec.config == (OpaqueConfig("d", {"a": [1]}, ("gpu",), "FromClaim"),)
    assert spec.unsupported == ()


def test_what_can_not_be_represented_is_named() -> None:
    spec = claim_from(
        claim(
            requests=[{"name": "any", "newest": {}}],
            constraints=[{"newKind": "x"}],
        )
    ).spec
    assert spec.requests == (DeviceRequest("any", ""),)
    assert spec.unsupported == (
        "request any is neither exactly nor firstAvailable",
        "constraint 0 of an unknown kind",
    )


def test_alternatives_and_what_is_asked_of_each_are_read() -> None:
    toleration = {"key": "k", "operator": "Exists", "tolerationSeconds": 1}
    alternatives = [
        {"name": "a", "deviceClassName": "c", "count": 2, "tolerations": [toleration]},
        {"name": "b", "deviceClassName": "c", "derivedAttributes": [{"name": "d"}]},
    ]
    spec = claim_from(claim(requests=[{"name": "r", "firstAvailable": alternatives}])).spec
    (request,) = spec.requests
    first = DeviceRequest(
        "a", "c", count=2, tolerations=(DeviceToleration("k", "Exists", seconds=1),)
    )
    second = DeviceRequest("b", "c", derived_attributes=("d",))
    assert request == DeviceRequest("r", "", first_available=(first, second))
    assert list(spec.alternatives()) == [(request, first), (request, second)]
    assert spec.unsupported == ()


@pytest.mark.parametrize("wrong", [{"count": "many"}, {"deviceClassName": 1}, {"selectors": [{}]}])
def test_a_claim_with_a_request_of_another_shape_is_unreadable(wrong: Any) -> None:
    alternative = {"name": "a", "deviceClassName": "c"} | wrong
    spec = claim_from(claim(requests=[{"name": "any", "firstAvailable": [alternative]}])).spec
    assert spec.requests == ()
    assert spec.unreadable


names = st.text("abcdefgh-0123456789", min_size=1, max_size=12)
devices = st.builds(
    AllocatedDevice,
    request=names,
    id=st.builds(DeviceId, names, names, names),
    share_id=st.none() | st.uuids().map(str),
    consumed=st.dictionaries(names, st.integers(0, 10**6).map(str), max_size=3),
    admin_access=st.booleans(),
)
configs = st.builds(
    OpaqueConfig,
    driver=names,
    parameters=st.dictionaries(names, st.integers() | names),
    requests=st.lists(names, max_size=2).map(tuple),
    source=st.sampled_from(["FromClass", "FromClaim"]),
)


@given(
    st.builds(
        Allocation,
        devices=st.lists(devices, max_size=4).map(tuple),
        node=st.just("") | names,
        config=st.lists(configs, max_size=2).map(tuple),
    )
)
def test_an_allocation_written_is_read_back_equal(allocation: Allocation) -> None:
    assert allocation_from(allocation_to(allocation)) == allocation


def test_an_allocation_is_written_as_the_server_wants_it() -> None:
    device = AllocatedDevice("gpu", DeviceId("d", "n1", "g0"), "s", {"vram": "1Gi"})
    status = status_to(
        Allocation((device,), "n1"), timestamp_unix_s=0.9, reserved_for=[Consumer("p", "pu")]
    )
    assert status == {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "gpu",
                        "driver": "d",
                        "pool": "n1",
                        "device": "g0",
                        "shareID": "s",
                        "consumedCapacity": {"vram": "1Gi"},
                    }
                ]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                ]
            },
            "allocationTimestamp": "1970-01-01T00:00:00Z",
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "pu"}],
    }


def test_the_terms_of_an_allocation_and_its_nodes_are_written_and_read() -> None:
    terms = DeviceTerms((DeviceToleration("k", "Exists", seconds=0),), ("up",), ("down",))
    device = AllocatedDevice("r/s", DeviceId("d", "p", "a"), "u", {"m": "1"}, True, terms)
    expression = NodeSelectorRequirement("zone", "Exists")
    selector = NodeSelector((NodeSelectorTerm((expression,)),))
    config = OpaqueConfig("d", {"a": 1}, ("r",), "FromClass")
    allocation = Allocation((device,), "", (config,), selector)
    written = allocation_to(allocation)
    assert written == {
        "devices": {
            "results": [
                {
                    "request": "r/s",
                    "driver": "d",
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
                    "opaque": {"driver": "d", "parameters": {"a": 1}},
                }
            ],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
        },
    }
    assert allocation_from(written) == allocation


def test_an_allocation_that_several_nodes_may_use_is_pinned_to_none() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    assert allocation_from({"devices": {}, "nodeSelector": selector}).node == ""


def test_a_claim_that_accounts_for_a_pod_is_that_pods_own() -> None:
    uid = "0f1e2d3c-0000-4000-8000-0123456789ab"
    named: Any = claim(requests=[])
    named["metadata"]["name"] = f"gpus-{uid}"
    why = claim_from(named).spec.unreadable
    assert f"accounts for the GPUs of the pod {uid}" in why
    named["metadata"]["ownerReferences"] = [POD | {"uid": uid}]
    assert claim_from(named).spec.unreadable == ""
    named["metadata"] |= {"name": "gpus-of-mine", "ownerReferences": []}
    assert claim_from(named).spec.unreadable == ""
