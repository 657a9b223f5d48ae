"""A pod's own placement and topology: what is read, what travels, and what is refused."""

import json
from pathlib import Path

import pytest
import yaml

from dray.api.names import SHAPE
from dray.user_guide_form.documents import convert

P = "tensor-fusion.ai/"
EXAMPLE = Path(__file__).parents[3] / "examples" / "05-placement"


def parameters_of(cluster, pod, patched):
    answer = cluster.admit(pod)
    assert answer.allowed, answer.message
    shape = json.loads(patched(pod, answer)["metadata"]["annotations"][SHAPE])
    return [one["opaque"]["parameters"] for one in shape["spec"]["devices"]["config"]], answer


@pytest.mark.parametrize(
    ("annotation", "field", "text"),
    [
        ("placement", "placement", "NodeCompactGPULowLoad"),
        ("placement", "placement", "KubernetesCompatible"),
        ("placement", "placement", "node=binpack,gpu=spread"),
        ("placement", "placement", "gpu=binpack"),
        ("gpu-topology", "gpuTopology", "hard"),
        ("gpu-topology", "gpuTopology", "none"),
    ],
)
def test_it_travels_with_the_claim(cluster, pod, patched, annotation, field, text):
    (parameters,), answer = parameters_of(cluster, pod({P + annotation: text}), patched)

    assert parameters[field] == text
    assert answer.requested.understood[annotation] == text
    assert answer.warnings == ()


def test_every_container_s_request_carries_it(cluster, pod, patched):
    own = {P + "container-gpus": '{"app": {"dedicated-gpu": "true"}}', P + "gpu-topology": "hard"}
    for name in ("tflops-request", "vram-request"):
        own[P + name] = None
    asked = pod({P + "gpu-topology": "hard"})
    annotations = asked["metadata"]["annotations"]
    for name, text in own.items():
        if text is None:
            annotations.pop(name, None)
        else:
            annotations[name] = text
    found, _ = parameters_of(cluster, asked, patched)

    assert [one["gpuTopology"] for one in found] == ["hard"]


@pytest.mark.parametrize(
    "text",
    ["", "Random", "compactfirst", "node", "node=full", "node=spread,node=binpack", "card=spread"],
)
def test_a_placement_that_is_none_is_refused_with_those_there_are(cluster, text):
    message = cluster.errors({P + "placement": text})

    assert f"annotation {P}placement is " in message
    assert '"FragmentationAware", "KubernetesCompatible", or binpack or spread' in message


@pytest.mark.parametrize("text", ["", "nvlink", "Hard"])
def test_a_topology_that_is_none_is_refused_with_those_there_are(cluster, text):
    message = cluster.errors({P + "gpu-topology": text})

    assert f"annotation {P}gpu-topology is " in message
    assert '"hard", to wait for them' in message


def test_nobody_heeds_it_in_a_pool_of_kube_schedulers(cluster, pod):
    cluster.pool("shared", owner="kube-scheduler")
    asked = {P + "placement": "LowLoadFirst", P + "gpu-topology": "soft"}
    placement, topology = cluster.admit(pod(asked)).warnings

    assert f"annotation {P}placement has no effect" in placement
    assert f"annotation {P}gpu-topology has no effect" in topology
    assert "takes the first cards that fit" in cluster.errors({P + "gpu-topology": "hard"})


def test_the_example_s_pods_are_admitted_without_a_word(cluster):
    cluster.pool("placement", dedicated=True)
    files = ("02-singles.yaml", "03-pair.yaml")
    pods = [one for file in files for one in yaml.safe_load_all((EXAMPLE / file).read_text())]

    assert [cluster.admit(one).warnings for one in pods] == [()] * 3
    for file in EXAMPLE.glob("*.yaml"):
        text = file.read_text("utf-8")
        assert convert(text).text == text
