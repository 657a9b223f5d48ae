"""What is wrong with the requests of containers is named with them."""

import pytest
from tests.unit.webhook.containers import SPEC, gives

P = "tensor-fusion.ai/"
CLAIM = "tensor-fusion-gpu-claim"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("main", 'is "main": expected a JSON object with a field per container'),
        ("[]", "expected a JSON object with a field per container"),
        ("{}", "expected a JSON object with a field per container"),
        ("[" * 100_000, "expected a JSON object with a field per container"),
        ('{"main": 1, "main": 2}', 'container "main" is named more than once'),
        (
            '{"app": 1}',
            'container "app": the pod has no container "app"; expected one of: "init", ',
        ),
        ('{"main": {}}', 'container "main": expected what the container asks for'),
        ('{"main": ["GPU-1"]}', "expected what the container asks for, not a list"),
        ('{"main": null}', "expected a number of GPUs: a text, a number, true or false"),
        ('{"main": {"vram": "1Gi"}}', '"vram" is not known there: expected dedicated-gpu, '),
        ('{"main": {"qos": "low", "qos": "high"}}', "qos is named more than once"),
        ('{"main": {"qos": ["low"]}}', "expected a value of qos: a text, a number"),
        ('{"main": 0}', 'container "main", gpu-count is "0": expected a whole number from 1 to 32'),
        ('{"main": {"qos": "best"}}', 'container "main", qos is "best": expected one of "low"'),
        (
            '{"main": {"vram-request": "1Gi"}}',
            f'annotation {P}container-gpus, container "main", tflops-request is missing',
        ),
        (
            '{"main": {"dedicated-gpu": true, "vram-request": "1Gi"}}',
            'container "main", vram-request is "1Gi": expected none together with',
        ),
        ('{"main": 20, "side": 20}', "40 GPUs for all containers: expected 32 at most"),
    ],
)
def test_what_is_wrong_is_named_with_its_container(cluster, text, expected):
    message = cluster.errors({P + "container-gpus": text}, **SPEC)

    assert expected in message


def test_of_a_container_that_is_not_there_a_wrong_field_is_named_too(cluster):
    message = cluster.errors(gives(app={"gpu-cuont": 1}), **SPEC)

    assert f'{P}container-gpus, container "app": the pod has no container "app"' in message
    assert f'{P}container-gpus, container "app": "gpu-cuont" is not known there' in message


def test_every_error_is_numbered(cluster):
    message = cluster.errors(
        {P + "qos": "best", **gives(app=1, main={"qos": "worst"}), P + "inject-container": "x"},
        **SPEC,
    )

    assert "can't get its GPUs: 5 errors\n1. " in message
    assert f'annotation {P}inject-container is "x": the pod has no container "x"' in message
    assert 'container "main" is given GPUs, but annotation' in message


def test_one_annotation_says_what_containers_get(cluster):
    message = cluster.errors({**gives(main=1), P + "container-gpu-count": '{"main": 1}'}, **SPEC)

    assert "both say what containers get" in message


def test_counts_are_numbers(cluster):
    message = cluster.errors({P + "container-gpu-count": '{"main": {"qos": "low"}}'}, **SPEC)

    assert f"expected a number of GPUs; use {P}container-gpus to say more" in message


def test_a_reference_by_hand_does_not_get_past_the_annotations(cluster):
    proxy = {"name": "proxy", "resources": {"claims": [{"name": CLAIM}]}}
    message = cluster.errors(
        gives(main=1),
        containers=[{"name": "main"}, proxy],
        resourceClaims=[{"name": CLAIM, "resourceClaimTemplateName": "tensor-fusion-gpu-template"}],
    )

    assert 'container "proxy" refers to the claim of dray in resources.claims' in message


def test_the_result_is_drays_to_write(cluster, pod, patched):
    asked = pod({**gives(main=1), P + "container-gpu-ids": '{"main": ["GPU-mine"]}'}, **SPEC)
    answer = cluster.admit(asked)

    assert P + "container-gpu-ids" not in patched(asked, answer)["metadata"]["annotations"]
    assert f"annotation {P}container-gpu-ids is written by dray only" in answer.warnings[0]
