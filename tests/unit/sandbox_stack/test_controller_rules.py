"""The resourceclaim-controller stand-in's decisions about one pod or one claim."""

from typing import Any

from dray.api.names import CLAIM_FINALIZER, POD_CLAIM_NAME
from dray_sandbox.controllers.rules import (
    CreateClaim,
    DeleteClaim,
    DropFinalizer,
    ReadPod,
    RecordClaims,
    Reserve,
    TemplateMissing,
    UpdateStatus,
    generated_claim,
    sync_claim,
    sync_pod,
)

Object = dict[str, Any]
TEMPLATE: Object = {
    "metadata": {"name": "tpl", "namespace": "team"},
    "spec": {
        "metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}},
        "spec": {"devices": {"requests": [{"name": "r"}]}},
    },
}


def pod(*, node: str = "", phase: str = "Pending", recorded: str = "", **metadata: Any) -> Object:
    statuses = [{"name": "gpu", "resourceClaimName": recorded}] if recorded else []
    return {
        "metadata": {"name": "mine", "namespace": "team", "uid": "uid-mine", **metadata},
        "spec": {
            "nodeName": node,
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "tpl"}],
        },
        "status": {"phase": phase, "resourceClaimStatuses": statuses},
    }


def claim(*, users: tuple[str, ...] = (), allocated: bool = False, **metadata: Any) -> Object:
    status: Object = {}
    if allocated:
        status["allocation"] = {"devices": {"results": []}}
    if users:
        status["reservedFor"] = [
            {"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users
        ]
    owner = {"kind": "Pod", "name": "mine", "uid": "uid-mine", "controller": True}
    base = {"name": "c", "namespace": "team", "ownerReferences": [owner]}
    finalizers = [CLAIM_FINALIZER] if allocated else []
    return {"metadata": {**base, "finalizers": finalizers, **metadata}, "status": status}


def nothing(namespace: str, name: str) -> Object | None:
    return None


def only(obj: Object) -> Any:
    return lambda namespace, name: obj if name == obj["metadata"]["name"] else None


def never(uid: str) -> bool:
    return False


def test_a_claim_is_stamped_from_the_template_as_the_real_controller_does() -> None:
    (effect,) = sync_pod(pod(), nothing, only(TEMPLATE), [])
    assert isinstance(effect, CreateClaim)
    metadata = effect.claim["metadata"]
    assert metadata["generateName"] == "mine-gpu-"
    assert metadata["annotations"] == {"a": "1", POD_CLAIM_NAME: "gpu"}
    assert metadata["labels"] == {"l": "1"}
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", "uid-mine", True)
    assert effect.claim["spec"] == TEMPLATE["spec"]["spec"]


def test_long_names_leave_room_for_the_suffix() -> None:
    reference = {"name": "r" * 40, "resourceClaimTemplateName": "tpl"}
    made = generated_claim(pod(name="p" * 40), reference, TEMPLATE)
    assert len(made["metadata"]["generateName"]) <= 57


def test_a_missing_template_is_complained_about() -> None:
    (effect,) = sync_pod(pod(), nothing, nothing, [])
    assert effect == TemplateMissing(
        'PodResourceClaim gpu: resource claim template "tpl": '
        'resourceclaimtemplate.resource.k8s.io "tpl" not found'
    )


def test_a_claim_made_before_a_crash_is_found_again_instead_of_made_twice() -> None:
    orphan = claim(annotations={POD_CLAIM_NAME: "gpu"})
    assert sync_pod(pod(), nothing, only(TEMPLATE), [orphan]) == [RecordClaims({"gpu": "c"})]


def test_nothing_is_made_for_a_pod_that_has_its_claim_or_is_being_deleted() -> None:
    assert sync_pod(pod(recorded="c"), only(claim()), only(TEMPLATE), []) == []
    assert sync_pod(pod(deletionTimestamp="now"), nothing, only(TEMPLATE), []) == []


def test_a_pod_that_ended_gets_no_new_claim_for_the_one_it_gave_back() -> None:
    ended = pod(node="n1", phase="Succeeded", recorded="given-back")
    assert sync_pod(ended, nothing, only(TEMPLATE), []) == []


def test_a_pod_bound_without_reservation_gets_one() -> None:
    bound = pod(node="n", recorded="c")
    (effect,) = sync_pod(bound, only(claim(allocated=True)), only(TEMPLATE), [])
    assert isinstance(effect, Reserve)
    assert effect.claim["status"]["reservedFor"][0]["uid"] == "uid-mine"


def test_the_last_users_end_releases_the_allocation_then_the_finalizer_then_the_claim() -> None:
    finished = pod(node="n", phase="Succeeded")
    effects = sync_claim(claim(users=("mine",), allocated=True), only(finished), never)
    update, finalizer, delete = effects
    assert isinstance(update, UpdateStatus)
    assert update.claim["status"] == {}
    assert finalizer == DropFinalizer()
    assert delete == DeleteClaim()


def test_a_reservation_without_other_users_keeps_the_allocation_only_for_the_rest() -> None:
    shared = claim(users=("gone", "mine"), allocated=True)
    effects = sync_claim(shared, only(pod(node="n")), lambda uid: uid == "uid-gone")
    (update,) = effects
    assert isinstance(update, UpdateStatus)
    assert [user["uid"] for user in update.claim["status"]["reservedFor"]] == ["uid-mine"]
    assert "allocation" in update.claim["status"]


def test_an_allocation_that_nobody_reserved_yet_is_left_alone() -> None:
    assert sync_claim(claim(allocated=True), only(pod()), never) == []


def test_a_pod_that_was_never_seen_is_asked_for_before_its_reservation_goes() -> None:
    assert sync_claim(claim(users=("mine",), allocated=True), nothing, never) == [
        ReadPod("mine", "uid-mine")
    ]


def test_a_deleted_claim_that_nobody_uses_loses_allocation_and_finalizer() -> None:
    deleted = claim(allocated=True, deletionTimestamp="now")
    update, finalizer = sync_claim(deleted, only(pod()), never)
    assert isinstance(update, UpdateStatus)
    assert "allocation" not in update.claim["status"]
    assert finalizer == DropFinalizer()


def test_a_deleted_claim_that_is_used_waits() -> None:
    used = claim(users=("mine",), allocated=True, deletionTimestamp="now")
    assert sync_claim(used, only(pod(node="n")), never) == []


def test_consumers_that_are_not_pods_are_not_judged() -> None:
    other = claim(allocated=True)
    other["status"]["reservedFor"] = [{"apiGroup": "x", "resource": "y", "name": "n", "uid": "u"}]
    assert sync_claim(other, nothing, never) == []


def test_a_pod_deleted_before_it_had_a_node_gives_its_claim_back() -> None:
    unplaced = pod(deletionTimestamp="now")
    assert sync_claim(claim(), only(unplaced), never) == [DeleteClaim()]
