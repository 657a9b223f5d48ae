"""Base templates and requests of which no claim can be made are denied."""

import copy

import pytest

from dray.api.names import DEVICE_CLASS

P = "tensor-fusion.ai/"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.attributes["model"] ==', "compilation failed: ERROR: <input>:1:30: Syntax error"),
        ('device.attributes["quota"] == "x"', "1:18: 'quota': "),
        ('device.capacity["tflops"] >= 100', "1:16: a Quantity can't be compared"),
        ("nonsense", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nonsense'"),
    ],
)
def test_an_unusable_expression_is_denied_with_its_place(cluster, expression, expected):
    message = cluster.errors({P + "dra-cel-expression": expression})

    assert f"annotation {P}dra-cel-expression can't be used: {expected}" in message
    assert message.endswith("^")


def test_an_expression_that_is_not_a_condition_is_denied_in_kubernetes_words(cluster):
    message = cluster.errors({P + "dra-cel-expression": "1 + 1"})

    assert message.endswith("can't be used: must evaluate to bool or the unknown type, not int")


def _base(template_of, requests):
    base = copy.deepcopy(template_of())
    base.spec["spec"]["devices"]["requests"] = requests
    return base


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([], 'has no request named "gpu-request" and 0 of device class'),
        (
            [
                {"name": "a", "exactly": {"deviceClassName": DEVICE_CLASS}},
                {"name": "b", "exactly": {"deviceClassName": DEVICE_CLASS}},
            ],
            "and 2 of device class",
        ),
        ([{"name": "gpu-request", "firstAvailable": []}], 'must have the form "exactly"'),
        (
            [{"name": "gpu-request", "exactly": {"deviceClassName": "nic"}}],
            f'is of device class "nic", expected "{DEVICE_CLASS}"',
        ),
        (
            [
                {
                    "name": "gpu-request",
                    "exactly": {"deviceClassName": DEVICE_CLASS, "adminAccess": True},
                }
            ],
            "has adminAccess",
        ),
        (
            [
                {
                    "name": "gpu-request",
                    "exactly": {"deviceClassName": DEVICE_CLASS, "allocationMode": "All"},
                }
            ],
            "put the request for all devices of a node into another request",
        ),
    ],
)
def test_a_base_that_cannot_be_completed_is_denied(cluster, template_of, requests, expected):
    cluster.view.apply(_base(template_of, requests))

    assert expected in cluster.errors()


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": P + "owner", "operator": "Exists"},
        {"key": P + "owner", "operator": "Equal", "value": "dray", "effect": "NoSchedule"},
    ],
)
def test_a_base_that_tolerates_the_owner_taint_is_denied(cluster, template_of, toleration):
    cluster.view.apply(template_of("team-a", tolerations=[toleration]))

    message = cluster.errors()

    assert f"which covers the device taint {P}owner=dray" in message


def test_more_requests_than_a_claim_may_have_are_denied(cluster, template_of):
    base = copy.deepcopy(template_of())
    nic = {"name": "nic", "exactly": {"deviceClassName": "nic"}}
    base.spec["spec"]["devices"]["requests"].append(nic)
    cluster.view.apply(base)
    cluster.server(version="v1.35.2")

    message = cluster.errors({P + "gpu-count": "32"})

    assert "32 GPUs make 33 device requests: expected 32 at most" in message


@pytest.mark.parametrize(
    ("entry", "expected"),
    [("constraints", "33 device constraints"), ("config", "33 device config")],
)
def test_more_entries_than_a_claim_may_have_are_denied(cluster, template_of, entry, expected):
    base = copy.deepcopy(template_of())
    base.spec["spec"]["devices"][entry] = [{"requests": ["gpu-request"]}] * 33
    cluster.view.apply(base)

    assert f"make {expected}: expected 32 at most" in cluster.errors()


def test_more_selectors_than_a_request_may_have_are_denied(cluster, template_of):
    cluster.view.apply(template_of(selectors=[{"cel": {"expression": "1 < 2"}}] * 32))

    assert "make 33 selectors: expected 32 at most" in cluster.errors()


def test_a_selector_of_the_base_that_the_server_would_refuse_is_denied(cluster, template_of):
    cluster.view.apply(template_of(selectors=[{"cel": {"expression": "isNovel('10.0.0.1')"}}]))

    message = cluster.errors()

    assert (
        'a selector of request "gpu-request" can\'t be used: '
        "compilation failed: ERROR: <input>:1:8: undeclared reference to 'isNovel'" in message
    )


def test_a_claim_too_large_for_an_annotation_is_denied(cluster):
    cluster.server(version="v1.34.4")
    long = 'device.attributes["model"] == "' + "a" * 9_900 + '"'

    message = cluster.errors({P + "gpu-count": "32", P + "dra-cel-expression": long})

    assert "expected 262144 at most; shorten tensor-fusion.ai/dra-cel-expression" in message
