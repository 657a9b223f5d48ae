"""Selectors that the cluster's server would refuse are denied, in the server's own words."""

import json
from pathlib import Path

import pytest

from dray.api.names import DRIVER
from dray.cel.syntax import tree
from dray.cel.syntax.parser import parse

P = "tensor-fusion.ai/"
CEL = P + "dra-cel-expression"
A = f'device.attributes["{DRIVER}"]'
VECTORS = Path(__file__).parents[2] / "vectors" / "cel-sample.jsonl"
REFUSED = [
    vector
    for vector in map(json.loads, VECTORS.read_text("utf-8").splitlines())
    if vector["admission"] == "compile-error" and "token recognition" not in vector["compile_error"]
]
TOO_COMPLEX = '["a", "b"].isSorted()'


@pytest.mark.parametrize("vector", REFUSED, ids=lambda vector: vector["id"])
def test_the_words_and_the_caret_are_those_of_kubernetes(cluster, vector):
    cluster.server(version=f"v{vector['k8s']}.0")

    message = cluster.errors({CEL: vector["expression"]})

    expected = message.partition(f"annotation {CEL} can't be used: ")[2].splitlines()
    wanted = vector["compile_error"].splitlines()
    # dray adds the nearest known name.
    assert expected[0].partition(" (nearest known name: ")[0] == wanted[0]
    assert expected[1:] == wanted[1:]


@pytest.mark.parametrize(
    ("expression", "server", "expected"),
    [
        ("lists.range(3).size() == 3", {"version": "v1.34.2"}, "undeclared reference to 'lists'"),
        ("lists.range(3).size() == 3", {"version": "v1.35.0"}, ""),
        (
            "device.allowMultipleAllocations",
            {"version": "v1.36.3", "consumable_capacity": False},
            "undefined field 'allowMultipleAllocations'",
        ),
        ("device.allowMultipleAllocations", {"version": "v1.36.3"}, ""),
        (f'{A}.model.includes("A100")', {"version": "v1.36.3"}, "undeclared reference"),
        (f'{A}.model.includes("A100")', {"version": "v1.36.3", "list_attributes": True}, ""),
        ("lists.range(3).size() == 3", {"version": "unreadable"}, ""),
    ],
)
def test_the_servers_version_and_gates_decide(cluster, pod, expression, server, expected):
    cluster.server(**server)

    answer = cluster.admit(pod({CEL: expression}))

    assert answer.allowed == (not expected)
    assert expected in answer.message


def test_what_is_too_complex_is_denied_with_its_cost(cluster):
    message = cluster.errors({CEL: TOO_COMPLEX})

    assert "Forbidden: too complex, exceeds cost limit; it is estimated at " in message


def test_what_is_too_long_is_denied_with_its_size(cluster):
    long = '"' + "a" * 10_300 + '" == device.driver'

    assert "can't be used: Too long: may not be more than 10240 bytes; it has 10319" in (
        cluster.errors({CEL: long})
    )


def test_an_error_from_the_translation_is_reported_as_such(cluster):
    many = " && ".join(['device.attributes["model"] != "a"'] * 200)

    assert "can't be used: in Kubernetes' dialect it is refused: Too long" in (
        cluster.errors({CEL: many})
    )


@pytest.mark.parametrize("expression", [TOO_COMPLEX, "nonsense", "a" * 10_300])
def test_selectors_of_the_base_template_are_judged_too(cluster, template_of, expression):
    cluster.view.apply(template_of(selectors=[{"cel": {"expression": expression}}]))

    message = cluster.errors()

    assert 'a selector of request "gpu-request" can\'t be used: ' in message


def test_selectors_of_other_classes_are_judged_too(cluster, template_of):
    base = template_of()
    foreign = {
        "name": "nic",
        "exactly": {
            "deviceClassName": "nics.example.com",
            "selectors": [{"cel": {"expression": "lists.range(3).size() == 3"}}],
        },
    }
    base.spec["spec"]["devices"]["requests"].append(foreign)
    cluster.view.apply(base)
    assert cluster.admit({"metadata": {}}).allowed

    cluster.server(version="v1.34.2")

    assert 'a selector of request "nic" can\'t be used: compilation failed' in cluster.errors()


@pytest.mark.parametrize("model", ['A100" || true || "', "'", "\\", '\\" || true //'])
def test_annotations_can_not_change_what_the_selector_means(cluster, pod, patched, model):
    admitted = patched(pod({P + "gpu-model": model}), cluster.admit(pod({P + "gpu-model": model})))

    shape = json.loads(admitted["metadata"]["annotations"][P + "shape"])
    (selector,) = shape["spec"]["devices"]["requests"][0]["exactly"]["selectors"]
    root = parse(selector["cel"]["expression"])
    assert isinstance(root, tree.Logical)
    assert root.operator == "&&"
    compared = [term for term in root.terms if isinstance(term, tree.Binary)]
    assert compared[0].right == tree.Literal("string", model)
