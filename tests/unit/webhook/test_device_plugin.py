"""Pods that get their GPUs by the device plugin, without claims."""

import dataclasses
import json

import pytest
import yaml
from tests.written_pod import written_pod

P = "tensor-fusion.ai/"
SHARE = P + "gpu-share"
CARD = "nvidia.com/gpu"
WITHOUT = {P + "gpupool": "dedicated", P + "dra-enabled": "false"}


@pytest.fixture
def cluster(cluster):
    cluster.rules = dataclasses.replace(cluster.rules, gpu_resources=(CARD,), device_plugin=True)
    return cluster


def amounts(pod, index=0):
    return pod["spec"]["containers"][index]["resources"]["limits"]


def test_containers_ask_the_device_plugin_and_no_claim_is_referred_to(cluster, pod, patched):
    written = pod(WITHOUT)
    answer = cluster.admit(written)
    found = patched(written, answer)
    assert "resourceClaims" not in found["spec"]
    assert answer.derive is None
    container = found["spec"]["containers"][0]
    assert container["resources"] == {"limits": {SHARE: "1"}, "requests": {SHARE: "1"}}
    (variable,) = container["env"]
    assert variable["name"] == "TENSOR_FUSION_GPU_IDS"
    path = f"metadata.annotations['{P}gpu-ids']"
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": path}}
    assert found["spec"]["schedulerName"] == "tensor-fusion-scheduler"
    shape = json.loads(found["metadata"]["annotations"][P + "shape"])
    assert shape["spec"]["devices"]["requests"]


@pytest.mark.parametrize("policy", ["off", ""])
def test_where_nothing_turns_dra_on_the_device_plugin_is_used(cluster, pod, patched, policy):
    cluster.pool("plain", template=policy, dedicated=True)
    written = pod({P + "gpupool": "plain", P + "dra-enabled": None})
    found = patched(written, cluster.admit(written))
    assert found["metadata"]["annotations"][P + "dra-enabled"] == "false"
    assert amounts(found) == {SHARE: "1"}


def test_whole_cards_of_one_container_are_counted_as_such(cluster, pod, patched):
    whole = {P + "dedicated-gpu": "true", P + "gpu-count": "2"}
    none = {P + "tflops-request": None, P + "vram-request": None}
    written = pod(WITHOUT | whole | none)
    assert amounts(patched(written, cluster.admit(written))) == {CARD: "2"}


def test_a_limit_of_cards_stays_as_it_is(cluster, patched, request_of):
    cluster.pool("dedicated", default=True)
    pod = yaml.safe_load(written_pod())
    pod["metadata"] |= {"namespace": "team-a", "annotations": {P + "dra-enabled": "false"}}
    found = patched(pod, cluster.admit(pod))
    assert amounts(found) == {CARD: "1"}
    again = cluster.admit(found, operation="UPDATE", old=found)
    assert again.allowed
    assert again.patch == ()


def test_an_annotation_that_the_webhook_wrote_is_restored(cluster, pod, patched):
    cluster.pool("plain", template="off", dedicated=True)
    written = pod({P + "gpupool": "plain", P + "dra-enabled": None})
    admitted = patched(written, cluster.admit(written))
    applied = json.loads(json.dumps(admitted))
    del applied["metadata"]["annotations"][P + "dra-enabled"]
    assert patched(applied, cluster.admit(applied, operation="UPDATE", old=admitted)) == admitted


def test_pods_with_claims_still_lose_the_resource(cluster, patched):
    cluster.pool("dedicated", default=True)
    pod = yaml.safe_load(written_pod())
    pod["metadata"]["namespace"] = "team-a"
    found = patched(pod, cluster.admit(pod))
    assert amounts(found) == {}
    assert found["spec"]["resourceClaims"]


def test_annotations_of_dray_on_a_new_pod_are_removed(cluster, pod, patched):
    written = pod(WITHOUT | {P + "gpu-ids": "GPU-of-somebody"})
    answer = cluster.admit(written)
    assert P + "gpu-ids" not in patched(written, answer)["metadata"]["annotations"]
    assert any("gpu-ids is written by dray only" in warning for warning in answer.warnings)


@pytest.mark.parametrize(
    ("annotations", "spec", "why"),
    [
        ({P + "gpupool": "shared"}, {}, "kube-scheduler would bind it"),
        ({}, {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone"}]}}}, "kube-scheduler would bind it"),
        ({P + "container-gpu-count": '{"app": 1}'}, {}, "ask for GPUs of their own"),
        ({}, {"resourceClaims": [{"name": "tensor-fusion-gpu-claim",
            "resourceClaimTemplateName": "tensor-fusion-gpu-template"}]}, "refers to a claim"),
        ({P + "inject-container": "first"}, {"initContainers": [{"name": "first"}]},
            "only init containers get them"),
    ],
)  # fmt: skip
def test_what_needs_claims_is_refused(cluster, annotations, spec, why):
    assert why in cluster.errors(WITHOUT | annotations, **spec)


def test_without_the_setting_it_is_refused_as_before(cluster):
    cluster.rules = dataclasses.replace(cluster.rules, device_plugin=False)
    assert "no other way to give a pod GPUs" in cluster.errors(WITHOUT)


def test_pools_of_kube_scheduler_give_gpus_to_claims_alone(cluster):
    cluster.server(allocating_scheduler=True)
    cluster.pool("theirs", owner="kube-scheduler")
    message = cluster.errors({P + "gpupool": "theirs", P + "dra-enabled": "false"})
    assert "gives GPUs only to claims" in message


@pytest.mark.parametrize("wish", ["limit", "annotations", "share"])
def test_a_pod_that_is_sent_again_stays_as_it_is(cluster, pod, patched, wish):
    """Another mutating webhook changed it, so that the API server calls dray's again."""
    cluster.pool("dedicated", default=True)
    none = {P + "tflops-request": None, P + "vram-request": None}
    written = pod(WITHOUT | (none if wish != "share" else {}))
    if wish == "limit":
        written["spec"]["containers"][0]["resources"] = {"limits": {CARD: "2"}}
    if wish == "annotations":
        written["metadata"]["annotations"] |= {P + "dedicated-gpu": "true", P + "gpu-count": "2"}
    first = patched(written, cluster.admit(written))
    answer = cluster.admit(first)
    assert answer.allowed, answer.message
    assert patched(first, answer)["spec"] == first["spec"]


def test_init_containers_take_turns_with_the_container_that_gets_the_cards(cluster, pod, patched):
    none = {P + "tflops-request": None, P + "vram-request": None}
    written = pod(WITHOUT | none | {P + "dedicated-gpu": "true"}, initContainers=[{"name": "init"}])
    found = patched(written, cluster.admit(written))
    assert amounts(found) == {CARD: "1"}
    assert found["spec"]["initContainers"][0]["resources"]["limits"] == {CARD: "1"}


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_shares_that_a_user_takes_without_asking_are_removed(cluster, pod, patched, enabled):
    asked = {P + "dra-enabled": enabled, P + "inject-container": "app"}
    written = pod(WITHOUT | asked)
    hoard = {"name": "hoard", "resources": {"limits": {SHARE: "64"}, "requests": {SHARE: "64"}}}
    written["spec"]["containers"].append(hoard)
    found = patched(written, cluster.admit(written))
    assert found["spec"]["containers"][1]["resources"] == {"limits": {}, "requests": {}}


def test_a_forged_shape_lets_nobody_take_more_cards(cluster, pod, patched):
    written = pod(WITHOUT | {P + "shape": "forged"})
    written["spec"]["containers"][0]["resources"] = {"limits": {CARD: "8"}}
    assert amounts(patched(written, cluster.admit(written))) == {SHARE: "1"}
