"""Pods that ask for whole GPUs by a resource, as device plugins offer them."""

import dataclasses
import json

import pytest
import yaml
from tests.written_pod import written_pod

P = "tensor-fusion.ai/"


@pytest.fixture
def cluster(cluster):
    cluster.rules = dataclasses.replace(cluster.rules, gpu_resources=("nvidia.com/gpu",))
    cluster.pool("shared", default=True)
    return cluster


def asking(*counts, annotations=None, **spec):
    containers = [
        {
            "name": f"c{index}",
            "image": "app",
            "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": count}} if count else {},
        }
        for index, count in enumerate(counts)
    ]
    metadata = {"name": "train", "namespace": "team-a"}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": {"containers": containers, **spec}}


def shape_requests(pod):
    devices = json.loads(pod["metadata"]["annotations"][P + "shape"])["spec"]["devices"]
    return devices["requests"]


def test_a_pod_of_the_traditional_form_gets_one_whole_gpu(cluster, patched):
    pod = yaml.safe_load(written_pod())
    found = patched(pod, cluster.admit(pod))
    container = found["spec"]["containers"][0]
    assert container["resources"]["limits"] == {}
    (request,) = shape_requests(found)
    assert request["exactly"]["count"] == 1
    assert "capacity" not in request["exactly"]
    assert container["resources"]["claims"] == [{"name": "tensor-fusion-gpu-claim"}]
    assert found["spec"]["resourceClaims"]
    again = cluster.admit(found)
    assert {one["path"] for one in again.patch} <= {"/metadata/annotations"}


@pytest.mark.parametrize("count", [2, "2", "2e0", "2000m"])
def test_each_container_gets_as_many_as_it_asks_for(cluster, patched, count):
    pod = asking(1, None, count)
    found = patched(pod, cluster.admit(pod))
    assert [one["exactly"]["count"] for one in shape_requests(found)] == [1, 2]
    claims = [one.get("resources", {}).get("claims") for one in found["spec"]["containers"]]
    assert [len(one or ()) for one in claims] == [1, 0, 1]
    assert found["spec"]["containers"][2]["resources"]["limits"] == {"cpu": "1"}


@pytest.mark.parametrize("count", ["0", "1500m", "-1", "many"])
def test_other_amounts_are_left_to_the_api_server(cluster, count):
    answer = cluster.admit(asking(count))
    assert answer.allowed
    assert answer.patch == ()


@pytest.mark.parametrize(
    ("init", "restart", "counts"),
    [(1, None, [8]), (8, None, [8]), (9, None, [9, 8]), (1, "Always", [1, 8])],
)
def test_init_containers_take_turns_with_the_container(cluster, patched, init, restart, counts):
    pod = asking(8)
    (first,) = asking(init)["spec"]["containers"]
    pod["spec"]["initContainers"] = [{**first, "name": "init", "restartPolicy": restart}]
    found = patched(pod, cluster.admit(pod))
    assert [one["exactly"]["count"] for one in shape_requests(found)] == counts
    (first,) = found["spec"]["initContainers"]
    assert first["resources"]["claims"]


def test_requests_of_the_resource_are_removed_too(cluster, patched):
    pod = asking(1)
    pod["spec"]["containers"][0]["resources"]["requests"] = {"nvidia.com/gpu": 1, "cpu": "1"}
    found = patched(pod, cluster.admit(pod))
    assert found["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}


def test_annotations_may_say_which_gpus(cluster, patched):
    pod = asking(1, annotations={P + "gpupool": "dedicated", P + "gpu-model": "H100"})
    found = patched(pod, cluster.admit(pod))
    (request,) = shape_requests(found)
    assert "H100" in str(request["exactly"]["selectors"])
    assert found["metadata"]["annotations"][P + "gpupool"] == "dedicated"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tflops-request", "1"),
        ("vram-limit", "1Gi"),
        ("gpu-count", "1"),
        ("dedicated-gpu", "true"),
        ("inject-container", "c1"),
    ],
)
def test_two_ways_to_say_how_much_are_refused(cluster, name, value):
    answer = cluster.admit(asking(1, None, annotations={P + name: value}))
    assert answer.message == (
        'pod "train" can\'t get its GPUs: '
        'container "c0" asks for nvidia.com/gpu, which is whole GPUs, and annotation '
        f"{P}{name} says what the pod gets, too: expected one of them"
    )


def test_more_gpus_than_a_claim_can_have_are_refused(cluster):
    answer = cluster.admit(asking(33, 1))
    assert answer.message == (
        'pod "train" can\'t get its GPUs: '
        'container "c0" asks for 33 of nvidia.com/gpu: expected 32 at most, '
        "the most devices that Kubernetes allows in one claim"
    )
    assert cluster.admit(asking(32)).allowed


def test_a_pod_that_is_applied_again_stays_as_it_was(cluster, patched, request_of):
    pod = asking(1)
    admitted = patched(pod, cluster.admit(pod))
    applied = json.loads(json.dumps(admitted))
    applied["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    answer = cluster.admit(applied, operation="UPDATE", old=admitted)
    assert patched(applied, answer) == admitted


def test_without_the_setting_the_pod_is_not_drays(cluster):
    cluster.rules = dataclasses.replace(cluster.rules, gpu_resources=())
    answer = cluster.admit(asking(1))
    assert answer.allowed
    assert answer.patch == ()
