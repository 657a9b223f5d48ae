"""The registration at the API server: objects, and conditions as CEL evaluates them."""

import base64

import pytest

from dray.api.names import DEVICE_CLASS
from dray_sandbox.apiserver.matchconditions import evaluate
from dray_webhook.decisions.registration import webhook_configurations

P = "tensor-fusion.ai/"
MUTATING, VALIDATING = webhook_configurations("https://127.0.0.1:8443/", b"PEM", timeout_s=3)
MUTATES = {webhook["name"].split(".")[0]: webhook for webhook in MUTATING["webhooks"]}
VALIDATES = {webhook["name"].split(".")[0]: webhook for webhook in VALIDATING["webhooks"]}
CLAIM_WEBHOOKS = ("claims", "tolerating-claims", "strange-claims")


def conditions_hold(webhook, new, old=None, user="alice", namespace="default"):
    operation = "CREATE" if old is None else "UPDATE"
    request = {"operation": operation, "namespace": namespace, "userInfo": {"username": user}}
    variables = {"object": new, "oldObject": old, "request": request}
    return all(evaluate(one["expression"], variables) for one in webhook["matchConditions"])


def pod(annotations=None, **spec):
    metadata = {"name": "a"} if annotations is None else {"name": "a", "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


def test_every_webhook_keeps_its_promises_and_only_creations_wait_for_dray():
    webhooks = [*MUTATING["webhooks"], *VALIDATING["webhooks"]]

    assert len({webhook["name"] for webhook in webhooks[:3]}) == 3
    for webhook in webhooks:
        name, rule = webhook["name"].split(".")[0], webhook["rules"][0]
        # Of the creations, those that are other drivers' users', mostly.
        is_open = rule["operations"] != ["CREATE"] or name in (
            "pods-by-resource",
            "strange-claims",
            "queues-of-podgroups",
        )
        assert webhook["failurePolicy"] == ("Ignore" if is_open else "Fail")
        assert webhook["sideEffects"] == "NoneOnDryRun"
        assert webhook["timeoutSeconds"] == (1 if name == "workloads" else 3)
        assert webhook["admissionReviewVersions"] == ["v1"]
        assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == b"PEM"
        assert webhook["name"].count(".") >= 2
    assert all(webhook["reinvocationPolicy"] == "IfNeeded" for webhook in MUTATING["webhooks"])
    assert [webhook["clientConfig"]["url"] for webhook in webhooks] == [
        *["https://127.0.0.1:8443/mutate-pods"] * 3,
        "https://127.0.0.1:8443/mutate-claims",
        "https://127.0.0.1:8443/mutate-groups",
        "https://127.0.0.1:8443/validate-pods",
        *["https://127.0.0.1:8443/validate-claims"] * 5,
        "https://127.0.0.1:8443/validate-workloads",
        *["https://127.0.0.1:8443/validate-pools"] * 3,
        *["https://127.0.0.1:8443/validate-groups"] * 2,
    ]


def deployment(annotations=None, **spec):
    template = {"metadata": {} if annotations is None else {"annotations": annotations}}
    return {"metadata": {"name": "w"}, "spec": {"template": template, **spec}}


def cronjob(annotations):
    job = deployment(annotations)
    return {"metadata": {"name": "w"}, "spec": {"jobTemplate": {"spec": job["spec"]}}}


OWNED = {"ownerReferences": [{"kind": "CronJob", "name": "c", "uid": "u"}]}


@pytest.mark.parametrize(
    ("new", "old", "sent"),
    [
        (deployment(), None, False),
        (deployment({"example.com/a": "b"}), None, False),
        (deployment({P + "qos": "low"}), None, True),
        (deployment({P + "qos": "low"}), deployment({P + "qos": "high"}), True),
        (deployment({P + "qos": "low"}, replicas=2), deployment({P + "qos": "low"}), False),
        (deployment({P + "qos": "low"}), deployment(), True),
        (cronjob({P + "qos": "low"}), None, True),
        (cronjob({}), None, False),
        (deployment({P + "qos": "low"}) | {"metadata": OWNED}, None, False),
        ({"metadata": {"name": "w"}, "spec": {"template": {}}}, None, False),
    ],
)
def test_workloads_are_sent_when_their_template_gets_other_annotations(new, old, sent):
    assert conditions_hold(VALIDATES["workloads"], new, old) == sent


@pytest.mark.parametrize(("name", "operation"), [("pods", "CREATE"), ("pod-updates", "UPDATE")])
def test_only_pods_themselves_are_sent_not_their_status(name, operation):
    (rule,) = MUTATES[name]["rules"]

    assert (rule["resources"], rule["operations"]) == (["pods"], [operation])


@pytest.mark.parametrize(
    ("new", "old", "sent"),
    [
        (pod(), None, False),
        (pod({"example.com/a": "b"}), None, False),
        (pod({P + "qos": "low"}), None, True),
        (pod(schedulerName="default-scheduler"), None, False),
        (pod(schedulerName="tensor-fusion-scheduler"), None, True),
        (pod({P + "qos": "low"}), pod({P + "qos": "high"}), True),
        (pod({P + "qos": "low"}), pod({P + "qos": "low"}), False),
        (pod({P + "qos": "low"}), pod(), True),
        (pod(), pod({P + "shape": "x"}), True),
        (pod({"example.com/a": "b"}), pod({"example.com/a": "c"}), False),
        (pod(), pod(), False),
        (pod({P + "qos": "low"}, schedulerName="a"), pod({P + "qos": "low"}), True),
        (pod({P + "qos": "low"}), pod({P + "qos": "low"}, tolerations=[{"key": "a"}]), True),
        (pod({P + "qos": "low"}), pod({P + "qos": "low"}, schedulingGates=[{}]), False),
        (pod(schedulerName="a"), pod(), False),
    ],
)
def test_pods_are_sent_when_what_dray_wrote_may_have_changed(new, old, sent):
    webhook = MUTATES["pods" if old is None else "pod-updates"]
    assert conditions_hold(webhook, new, old) == sent


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

    assert conditions_hold(MUTATES["claims"], {"spec": spec}) == sent
    assert conditions_hold(VALIDATES["claims"], {"spec": spec}) == sent
    assert conditions_hold(VALIDATES["templates"], {"spec": {"spec": spec}}) == sent
    assert not conditions_hold(
        VALIDATES["templates"], {"spec": {"spec": spec}}, namespace="dray-system"
    )


@pytest.mark.parametrize(
    ("tolerations", "tolerates"),
    [
        (None, False),
        ([], False),
        ([{"key": "nic.dev/sick", "operator": "Exists"}], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "", "operator": "Exists"}], True),
        ([{"key": "nic.dev/sick"}, {"key": P + "owner", "value": "dray"}], True),
    ],
)
@pytest.mark.parametrize("form", ["exactly", "firstAvailable"])
def test_claims_of_other_classes_are_sent_once(form, tolerations, tolerates):
    entry = {"deviceClassName": "nic"}
    if tolerations is not None:
        entry["tolerations"] = tolerations
    request = {"name": "a", form: entry if form == "exactly" else [{"deviceClassName": "x"}, entry]}
    spec = {"devices": {"requests": [request]}}
    sent = {name: conditions_hold(VALIDATES[name], {"spec": spec}) for name in CLAIM_WEBHOOKS}

    assert sent == {
        "claims": False,
        "tolerating-claims": tolerates,
        "strange-claims": not tolerates,
    }
    template = {"spec": {"spec": spec}}
    assert conditions_hold(VALIDATES["tolerating-templates"], template) == tolerates


@pytest.mark.parametrize("tolerations", [None, [{"operator": "Exists"}]])
def test_a_claim_of_our_class_is_sent_once(tolerations):
    entry = {"deviceClassName": DEVICE_CLASS}
    if tolerations is not None:
        entry["tolerations"] = tolerations
    spec = {"devices": {"requests": [{"name": "a", "exactly": entry}]}}
    sent = [name for name in CLAIM_WEBHOOKS if conditions_hold(VALIDATES[name], {"spec": spec})]

    assert sent == ["claims"]


@pytest.mark.parametrize(
    ("annotations", "sent"),
    [
        (None, False),
        ({"example.com/a": "b"}, False),
        ({P + "qos": "low"}, True),
        ({P + "qos": "low", P + "shape": "{}"}, False),
    ],
)
def test_only_pods_that_slipped_past_are_validated(annotations, sent):
    assert conditions_hold(VALIDATES["pods"], pod(annotations)) == sent


def test_a_claim_of_another_class_is_drays_where_it_names_a_pool():
    claim = {"metadata": {"name": "a", "labels": {P + "gpupool": "a"}}}
    claim["spec"] = {
        "devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "nic"}}]}
    }
    sent = [name for name in CLAIM_WEBHOOKS if conditions_hold(VALIDATES[name], claim)]

    assert sent == ["claims"]
    assert not conditions_hold(MUTATES["claims"], claim)


def test_drays_own_updates_of_pods_wait_for_no_webhook():
    new, old = pod({P + "qos": "low", "note": "x"}), pod({P + "qos": "low"})
    user = "dray-claim-controller"

    assert conditions_hold(MUTATES["pod-updates"], new, old)
    assert not conditions_hold(MUTATES["pod-updates"], new, old, user)
    assert conditions_hold(MUTATES["pods"], new, None, user)


POOL_KINDS = ("gpupools", "schedulingconfigtemplates")


def test_deletions_of_pools_and_policies_are_sent():
    deleted = [
        (rule["resources"], rule["scope"], webhook["matchConditions"])
        for webhook in VALIDATING["webhooks"]
        for rule in webhook["rules"]
        if rule["operations"] == ["DELETE"]
    ]

    assert deleted == [([kind], "Cluster", []) for kind in POOL_KINDS]


def test_status_of_claims_is_never_sent():
    webhooks = [*MUTATING["webhooks"], *VALIDATING["webhooks"]]
    sent = {name for one in webhooks for rule in one["rules"] for name in rule["resources"]}

    workloads = {"deployments", "statefulsets", "daemonsets", "jobs", "cronjobs"}
    claims = {"resourceclaims", "resourceclaimtemplates"}
    assert sent == workloads | claims | {"pods", *POOL_KINDS, "podgroups", "queues"}


def test_pods_that_ask_for_whole_gpus_by_a_resource_are_sent_once():
    configurations = webhook_configurations("https://w", b"", gpu_resources=["nvidia.com/gpu"])
    mutates = {one["name"].split(".")[0]: one for one in configurations[0]["webhooks"]}
    asks = {"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 1}}}
    plain = {"resources": {"limits": {"cpu": 1}}}
    by_resource = mutates["pods-by-resource"]
    assert conditions_hold(by_resource, pod(containers=[plain, asks]))
    assert conditions_hold(by_resource, pod(containers=[{}], initContainers=[{}, asks]))
    assert not conditions_hold(by_resource, pod(containers=[plain, {"name": "a"}]))
    assert not conditions_hold(MUTATES["pods-by-resource"], pod(containers=[asks]))
    annotated = pod({"tensor-fusion.ai/gpupool": "a"}, containers=[asks])
    assert conditions_hold(mutates["pods"], annotated)
    assert not conditions_hold(by_resource, annotated)
    admitted = pod({"tensor-fusion.ai/gpupool": "a"}, containers=[plain])
    assert conditions_hold(mutates["pod-updates"], annotated, admitted)
    assert not conditions_hold(mutates["pod-updates"], admitted, admitted)


def test_groups_of_volcano_are_sent_where_volcano_is_absent():
    assert not conditions_hold(VALIDATES["podgroups"], {"spec": {}})
    names = ("tensor-fusion-scheduler", "volcano")
    configurations = webhook_configurations("https://w", b"", scheduler_names=names)
    mutates, validates = (
        {one["name"].split(".")[0]: one for one in c["webhooks"]} for c in configurations
    )
    for kind in ("podgroups", "queues"):
        assert conditions_hold(validates[kind], {"spec": {}})
    assert conditions_hold(mutates["pods"], pod(schedulerName="volcano"))
