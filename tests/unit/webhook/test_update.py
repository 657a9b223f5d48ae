"""UPDATE: what dray put into a pod is put back; the API server refuses what may not change."""

import copy

import pytest

from dray_webhook.decisions.pods import refuse_late_annotations

P = "tensor-fusion.ai/"


@pytest.fixture
def admitted(cluster, pod, patched):
    asked = pod()
    return patched(asked, cluster.admit(asked))


def changed(obj, **annotations):
    new = copy.deepcopy(obj)
    for name, text in annotations.items():
        key = P + name.replace("_", "-")
        if text is None:
            new["metadata"]["annotations"].pop(key, None)
        else:
            new["metadata"]["annotations"][key] = text
    return new


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("request_id", "forged"),
        ("request_id", None),
        ("traceparent", "forged"),
        ("traceparent", None),
        ("shape", "forged"),
        ("shape", None),
        ("gpupool", None),
    ],
)
def test_what_dray_wrote_is_put_back(cluster, admitted, patched, name, text):
    new = changed(admitted, **{name: text})

    answer = cluster.admit(new, operation="UPDATE", old=admitted)

    assert patched(new, answer) == admitted
    assert "it was put back" in answer.warnings[0]


@pytest.mark.parametrize("name", ["decision", "void", "allocated"])
def test_forged_annotations_are_removed(cluster, admitted, patched, name):
    new = changed(admitted, **{name: "7"})

    answer = cluster.admit(new, operation="UPDATE", old=admitted)

    assert patched(new, answer) == admitted


def test_they_are_removed_from_other_pods_too(cluster, pod, patched):
    old = pod()
    new = changed(old, shape="forged")

    answer = cluster.admit(new, operation="UPDATE", old=old)

    assert patched(new, answer) == old


@pytest.mark.parametrize(("name", "text"), [("gpupool", "dedicated"), ("tflops_request", "1")])
def test_what_was_asked_for_is_left_to_the_api_server_to_refuse(cluster, admitted, name, text):
    answer = cluster.admit(changed(admitted, **{name: text}), operation="UPDATE", old=admitted)

    assert (answer.allowed, answer.patch, answer.warnings) == (True, (), ())


def test_other_annotations_and_specs_are_free(cluster, admitted):
    new = copy.deepcopy(admitted)
    new["metadata"]["annotations"]["example.com/note"] = "x"
    del new["spec"]["schedulingGates"]

    answer = cluster.admit(new, operation="UPDATE", old=admitted)

    assert (answer.allowed, answer.patch, answer.warnings) == (True, (), ())


def test_drays_own_users_write_what_they_must(cluster, admitted):
    new = changed(admitted, allocated="true")

    answer = cluster.admit(new, operation="UPDATE", old=admitted, user="dray-claim-controller")

    assert (answer.allowed, answer.patch) == (True, ())


def test_taking_every_annotation_away_is_noticed(cluster, admitted, patched):
    new = copy.deepcopy(admitted)
    del new["metadata"]["annotations"]

    answer = cluster.admit(new, operation="UPDATE", old=admitted)

    kept = patched(new, answer)["metadata"]["annotations"]
    for name in ("request-id", "traceparent", "shape", "gpupool"):
        assert kept[P + name] == admitted["metadata"]["annotations"][P + name]


def test_a_manifest_applied_again_takes_nothing_back(cluster, pod, patched):
    other = {"key": "other", "operator": "Exists"}
    asked = pod({P + "gpupool": "dedicated"}, schedulerName="volcano", tolerations=[other])
    old = patched(asked, cluster.admit(asked))
    new = copy.deepcopy(old)
    new["spec"] |= {"schedulerName": "volcano", "tolerations": [other]}

    answer = cluster.admit(new, operation="UPDATE", old=old)

    assert patched(new, answer) == old
    assert answer.warnings == ()


def test_tolerations_may_be_added(cluster, pod, patched):
    asked = pod({P + "gpupool": "dedicated"})
    old = patched(asked, cluster.admit(asked))
    new = copy.deepcopy(old)
    new["spec"]["tolerations"].append({"key": "other", "operator": "Exists"})

    assert cluster.admit(new, operation="UPDATE", old=old).patch == ()


def test_a_pod_that_slipped_past_is_refused(request_of, pod):
    answer = refuse_late_annotations(request_of(pod()))

    assert (answer.allowed, answer.code) == (False, 400)
    assert (
        f"annotation {P}gpupool was added by a mutating webhook that was called after dray's"
        in answer.message
    )


def test_an_admitted_pod_is_not_refused(request_of, admitted):
    assert refuse_late_annotations(request_of(admitted)).allowed
