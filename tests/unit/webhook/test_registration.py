"""How the API server is told to call: objects, and conditions as CEL evaluates them."""

import base64

import pytest

from dray.domain.names import DEVICE_CLASS
from dray_sandbox.apiserver.matchconditions import evaluate
from dray_webhook.registration import webhook_configurations

P = "tensor-fusion.ai/"
MUTATING, VALIDATING = webhook_configurations("https://127.0.0.1:8443/", b"PEM", timeout_s=3)


def conditions_hold(webhook, new, old=None):
    operation = "CREATE" if old is None else "UPDATE"
    variables = {"object": new, "oldObject": old, "request": {"operation": operation}}
    return all(evaluate(one["expression"], variables) for one in webhook["matchConditions"])


def pod(annotations=None):
    metadata = {"name": "a"} if annotations is None else {"name": "a", "annotations": annotations}
    return {"metadata": metadata, "spec": {}}


def test_every_webhook_fails_closed_and_keeps_its_promises():
    webhooks = [*MUTATING["webhooks"], *VALIDATING["webhooks"]]

    assert len({webhook["name"] for webhook in MUTATING["webhooks"]}) == 2
    for webhook in webhooks:
        assert webhook["failurePolicy"] == "Fail"
        assert webhook["sideEffects"] == "NoneOnDryRun"
        assert webhook["timeoutSeconds"] == 3
        assert webhook["admissionReviewVersions"] == ["v1"]
        assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == b"PEM"
        assert webhook["name"].count(".") >= 2
    assert all(webhook["reinvocationPolicy"] == "IfNeeded" for webhook in MUTATING["webhooks"])
    assert [webhook["clientConfig"]["url"] for webhook in webhooks] == [
        "https://127.0.0.1:8443/mutate-pods",
        "https://127.0.0.1:8443/mutate-claims",
        "https://127.0.0.1:8443/validate-claims",
        "https://127.0.0.1:8443/validate-claims",
    ]


def test_only_pods_themselves_are_sent_not_their_status():
    (rule,) = MUTATING["webhooks"][0]["rules"]

    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE", "UPDATE"])


@pytest.mark.parametrize(
    ("new", "old", "sent"),
    [
        (pod(), None, False),
        (pod({"example.com/a": "b"}), None, False),
        (pod({P + "qos": "low"}), None, True),
        (pod({P + "qos": "low"}), pod({P + "qos": "high"}), True),
        (pod({P + "qos": "low"}), pod({P + "qos": "low"}), False),
        (pod({P + "qos": "low"}), pod(), True),
        (pod(), pod({P + "shape": "x"}), True),
        (pod({"example.com/a": "b"}), pod({"example.com/a": "c"}), False),
        (pod(), pod(), False),
    ],
)
def test_pods_are_sent_when_our_annotations_may_have_changed(new, old, sent):
    assert conditions_hold(MUTATING["webhooks"][0], new, old) == sent


@pytest.mark.parametrize(
    ("requests", "sent"),
    [
        ([{"name": "a", "exactly": {"deviceClassName": DEVICE_CLASS}}], True),
        ([{"name": "a", "exactly": {"deviceClassName": "nic"}}], False),
        ([{"name": "a", "firstAvailable": [{"deviceClassName": DEVICE_CLASS}]}], True),
        ([{"name": "a", "firstAvailable": [{"deviceClassName": "nic"}]}], False),
        (None, False),
    ],
)
def test_claims_and_templates_of_our_class_are_sent(requests, sent):
    spec = {"devices": {} if requests is None else {"requests": requests}}

    assert conditions_hold(MUTATING["webhooks"][1], {"spec": spec}) == sent
    assert conditions_hold(VALIDATING["webhooks"][0], {"spec": spec}) == sent
    assert conditions_hold(VALIDATING["webhooks"][1], {"spec": {"spec": spec}}) == sent
