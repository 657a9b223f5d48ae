"""Hand-written claims of our class: mapped, and refused where they would go past dray."""

import copy

import pytest

from dray.api.names import DEVICE_CLASS
from dray_webhook.decisions.claims import mutate_claim, validate_claim

P = "tensor-fusion.ai/"
D = "tensor-fusion.ai.dra-driver"


def claim(device_class=DEVICE_CLASS, capacity=None, tolerations=None, **metadata):
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    if capacity is not None:
        exactly["capacity"] = {"requests": capacity}
    if tolerations is not None:
        exactly["tolerations"] = tolerations
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "labels": {P + "gpupool": "shared"}, **metadata},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def template(**kwargs):
    return {
        "kind": "ResourceClaimTemplate",
        "metadata": {},
        "spec": {"spec": claim(**kwargs)["spec"]},
    }


@pytest.fixture
def review(request_of):
    def make(obj, **more):
        return request_of(obj, kind={"group": "resource.k8s.io", "kind": obj["kind"]}, **more)

    return make


def requested(obj):
    return obj["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"]


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ({"tflops": "100"}, {"virtual_tflops": "100"}),
        (
            {"tflops": "100", "vram": "16Gi"},
            {"virtual_tflops": "100", "virtual_vram": "16Gi"},
        ),
        ({D + "/vram": "16Gi"}, {"virtual_vram": "16Gi"}),
        ({"vram": "16Gi", "virtual_vram": "8Gi"}, {"virtual_vram": "8Gi"}),
        ({"tflops": "0", "virtual_tflops": "1"}, {"tflops": "0", "virtual_tflops": "1"}),
        ({"virtual_vram": "8Gi", "other": "1"}, {"virtual_vram": "8Gi", "other": "1"}),
    ],
)
def test_physical_capacities_become_the_virtual_pair(review, patched, asked, stored):
    obj = claim(capacity=asked)

    assert requested(patched(obj, mutate_claim(review(obj)))) == stored


def test_subrequests_are_mapped_too(review, patched):
    obj = claim()
    exactly = {
        "name": "a",
        **claim(capacity={"vram": "1Gi"})["spec"]["devices"]["requests"][0]["exactly"],
    }
    obj["spec"]["devices"]["requests"] = [{"name": "gpu", "firstAvailable": [exactly]}]

    mapped = patched(obj, mutate_claim(review(obj)))

    entry = mapped["spec"]["devices"]["requests"][0]["firstAvailable"][0]
    assert entry["capacity"]["requests"] == {"virtual_vram": "1Gi"}


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"vramLimit": "8Gi", "computePercentLimit": 30, "isolation": "soft"}, ""),
        ({"vramLimt": "8Gi"}, "'vramLimt' is not known: expected apiVersion, kind, tflopsLimit"),
        ({"apiVersion": "tensor-fusion.ai/v2"}, "expected tensor-fusion.ai/v1"),
        ({"tflopsLimit": "9", "computePercentLimit": "9"}, "both limit compute: expected one"),
        ({"vramLimit": "-1"}, "expected bytes as a quantity above zero"),
    ],
)
def test_configurations_of_claims_and_templates_are_checked(cluster, review, parameters, why):
    wanted = {"apiVersion": "tensor-fusion.ai/v1", "kind": "GPUShareConfig", **parameters}
    for obj in (claim(), template()):
        spec = obj["spec"].get("spec") or obj["spec"]
        spec["devices"]["config"] = [
            {"opaque": {"driver": "other.example", "parameters": {"kind": "Other"}}},
            {"opaque": {"driver": D, "parameters": wanted}},
        ]
        answer = validate_claim(review(obj), cluster.view)
        assert answer.allowed == (not why)
        assert why in answer.message


def test_other_classes_are_left_alone(review):
    obj = claim("nic", {"vram": "16Gi"}, [{"operator": "Exists"}])

    assert mutate_claim(review(obj)).patch == ()


def test_annotations_of_dray_are_stripped_at_birth(review, patched):
    obj = claim(annotations={P + "void": "9", P + "allocated": "true", "note": "x"})

    answer = mutate_claim(review(obj))

    assert patched(obj, answer)["metadata"]["annotations"] == {"note": "x"}
    assert len(answer.warnings) == 2


def test_a_claim_without_pool_gets_a_word(review):
    obj = claim(labels={})

    assert f"no label {P}gpupool" in mutate_claim(review(obj)).warnings[0]


@pytest.mark.parametrize("make", [claim, template])
@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": P + "owner", "operator": "Exists", "effect": "NoSchedule"},
        {"key": P + "owner", "value": "dray"},
    ],
)
def test_nobody_tolerates_the_owner_taint(cluster, review, make, toleration):
    answer = validate_claim(review(make(tolerations=[toleration])), cluster.view)

    assert not answer.allowed
    assert f"covers the device taint {P}owner=dray: no claim may" in answer.message


@pytest.mark.parametrize("make", [claim, template])
def test_other_tolerations_and_classes_are_free(cluster, review, make):
    other = {"key": P + "owner", "value": "dray", "effect": "NoExecute"}

    assert validate_claim(review(make(tolerations=[other])), cluster.view).allowed
    cluster.device_class("nic", 'device.driver == "nic.dev"')
    free = make(device_class="nic", tolerations=[{"operator": "Exists"}])
    assert validate_claim(review(free), cluster.view).allowed


def test_where_taints_are_dropped_hand_written_claims_are_denied(cluster, review):
    cluster.server(device_taints=False)

    answer = validate_claim(review(claim()), cluster.view)

    assert not answer.allowed
    assert "drops device taints" in answer.message
    cluster.device_class("nic", 'device.driver == "nic.dev"')
    assert validate_claim(review(claim("nic")), cluster.view).allowed
    update = review(claim(), operation="UPDATE", old=claim())
    assert validate_claim(update, cluster.view).allowed


def test_where_taints_are_dropped_and_there_are_many_pools_some_are_named(cluster, review):
    cluster.server(device_taints=False)
    for number in range(1000):
        cluster.pool(f"pool-{number}", owner="dray")

    for refused in (claim(), claim("unknown")):
        answer = validate_claim(review(refused), cluster.view)

        assert not answer.allowed
        assert " more to " in answer.message
        assert len(answer.message) < 1000


def test_where_taints_are_dropped_derived_claims_pass(cluster, review):
    cluster.server(device_taints=False)
    derived = claim(
        labels={P + "derived-from": "base", P + "gpupool": "dedicated"},
        annotations={"resource.kubernetes.io/pod-claim-name": "tensor-fusion-gpu-claim"},
        ownerReferences=[{"kind": "Pod", "name": "train"}],
    )

    assert validate_claim(review(derived), cluster.view).allowed


def test_where_taints_are_dropped_and_dray_owns_no_pool_claims_pass(cluster, review):
    cluster.server(device_taints=False)
    for name in list(cluster.view.pools):
        cluster.pool(name, owner="kube-scheduler")

    assert validate_claim(review(claim()), cluster.view).allowed


def test_mapping_is_equal_under_reinvocation(review, patched):
    obj = claim(capacity={"tflops": "100", "vram": "16Gi"}, annotations={P + "void": "1"})
    once = patched(copy.deepcopy(obj), mutate_claim(review(obj)))

    assert mutate_claim(review(once)).patch == ()


@pytest.mark.parametrize("device_class", [DEVICE_CLASS, "nic"])
def test_a_pool_keeps_its_namespaces_from_hand_written_claims_too(cluster, review, device_class):
    cluster.device_class("nic", 'device.driver == "nic.dev"')
    cluster.pool("shared", allowed_namespaces=("team-b",))

    answer = validate_claim(review(claim(device_class)), cluster.view)

    assert not answer.allowed
    assert 'does not admit claims of namespace "team-a": expected one of: "team-b"' in (
        answer.message
    )
    cluster.pool("shared", allowed_namespaces=("team-a",))
    assert validate_claim(review(claim(device_class)), cluster.view).allowed


def test_a_selector_that_only_a_newer_server_knows_is_denied_in_its_pools(cluster, review):
    toleration = {"operator": "Exists"}
    asked, free = claim(tolerations=[toleration]), claim(labels={})
    for one in (asked, free):
        exactly = one["spec"]["devices"]["requests"][0]["exactly"]
        exactly["selectors"] = [{"cel": {"expression": "isNovel(device)"}}]

    answer = validate_claim(review(asked), cluster.view)

    assert "undeclared reference to 'isNovel'" in answer.message
    assert "no claim may" in answer.message
    assert validate_claim(review(free), cluster.view).allowed
