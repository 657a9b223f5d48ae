"""The resourceclaim-controller's effects for one pod or one claim. Pure.

Follows ``pkg/controller/resourceclaim/controller.go`` of Kubernetes 1.36: ``syncPod`` and
``syncClaim``. Objects are the API server's JSON.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dray.api.names import CLAIM_FINALIZER, POD_CLAIM_NAME
from dray.api.pods import TERMINAL_PHASES
from dray.kube.ports import Object

_LONGEST_BASE = 57
"""Longest ``generateName`` of a claim: the server appends six characters, 63 are allowed."""
_MOST_RESERVATIONS = 256

Get = Callable[[str, str], Object | None]
"""An object by namespace and name, from a watch's cache."""


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """Create a pod's claim from its template."""

    reference: str
    claim: Object


@dataclass(frozen=True, slots=True)
class RecordClaims:
    """Write the names of generated claims into ``pod.status.resourceClaimStatuses``."""

    names: dict[str, str]
    """Claim names by reference."""


@dataclass(frozen=True, slots=True)
class TemplateMissing:
    """Write a Warning event on the pod, and retry with backoff."""

    message: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Reserve a claim for a pod that was bound without a reservation."""

    claim: Object


PodEffect = CreateClaim | RecordClaims | TemplateMissing | Reserve


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """Replace the claim's status, if its resourceVersion has not changed."""

    claim: Object


@dataclass(frozen=True, slots=True)
class DropFinalizer:
    """Remove the finalizer from the claim, after the effects before this one."""


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Delete a generated claim whose pod will not run."""


@dataclass(frozen=True, slots=True)
class ReadPod:
    """Read a pod that is not in the cache but reserves the claim, then decide again."""

    name: str
    uid: str


ClaimEffect = UpdateStatus | DropFinalizer | DeleteClaim | ReadPod


def sync_pod(
    pod: Object, claim_of: Get, template_of: Get, owned: Iterable[Object]
) -> list[PodEffect]:
    """The effects for a pod's claim references. ``owned`` are the claims that the pod controls."""
    if _is_deleting(pod) or is_done(pod):
        return []
    owned = list(owned)
    effects: list[PodEffect] = []
    found: dict[str, str] = {}
    for reference in pod["spec"].get("resourceClaims") or ():
        template_name = reference.get("resourceClaimTemplateName")
        if not template_name or _existing(pod, reference["name"], claim_of):
            continue
        orphan = _generated_before(owned, reference["name"])
        if orphan is not None:
            found[reference["name"]] = orphan["metadata"]["name"]
            continue
        template = template_of(pod["metadata"]["namespace"], template_name)
        if template is None:
            return [*effects, _no_template(reference["name"], template_name)]
        effects.append(CreateClaim(reference["name"], generated_claim(pod, reference, template)))
    if found:
        effects.append(RecordClaims(found))
    return effects or _reservations(pod, claim_of)


def generated_claim(pod: Object, reference: Object, template: Object) -> Object:
    """The claim that a template generates for one reference of a pod."""
    metadata = template["spec"].get("metadata") or {}
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "controller": True,
    }
    annotations = {**(metadata.get("annotations") or {}), POD_CLAIM_NAME: reference["name"]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": _base_name(pod["metadata"]["name"], reference["name"]),
            "namespace": pod["metadata"]["namespace"],
            "annotations": annotations,
            "labels": dict(metadata.get("labels") or {}),
            "ownerReferences": [owner],
        },
        "spec": template["spec"]["spec"],
    }


def sync_claim(claim: Object, pod_of: Get, is_deleted: Callable[[str], bool]) -> list[ClaimEffect]:
    """Remove stale reservations, then the allocation, then the claim.

    ``is_deleted`` gets a pod's uid.
    """
    status = claim.get("status") or {}
    reserved = status.get("reservedFor") or []
    remaining = []
    for consumer in reserved:
        keep = _still_uses(claim, consumer, pod_of, is_deleted)
        if isinstance(keep, ReadPod):
            return [keep]
        if keep:
            remaining.append(consumer)
    effects: list[ClaimEffect] = []
    finalized = CLAIM_FINALIZER in (claim["metadata"].get("finalizers") or ())
    if len(remaining) < len(reserved):
        release = not remaining and finalized
        effects.append(UpdateStatus(_with_status(claim, remaining, keep_allocation=not release)))
        if finalized and (release or not status.get("allocation")):
            effects.append(DropFinalizer())
    elif finalized and _is_deleting(claim) and not remaining:
        if status.get("allocation"):
            effects.append(UpdateStatus(_with_status(claim, [], keep_allocation=False)))
        effects.append(DropFinalizer())
    if not remaining and not _is_deleting(claim) and _owner_is_done(claim, pod_of):
        effects.append(DeleteClaim())
    return effects


def _is_deleting(obj: Object) -> bool:
    """Whether the object is being deleted: finalizers or its grace period keep it."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_done(pod: Object) -> bool:
    """Whether the pod will not run (again): ended, or deleted before it was bound."""
    phase = (pod.get("status") or {}).get("phase")
    unplaced = _is_deleting(pod) and not pod["spec"].get("nodeName")
    return phase in TERMINAL_PHASES or unplaced


def owner_uid(claim: Object) -> str:
    """The uid of a generated claim's pod, or empty."""
    return _owner(claim)[1]


def claims_of(pod: Object) -> list[str]:
    """Names of the existing claims that the pod uses."""
    made = _statuses(pod)
    names = (
        reference.get("resourceClaimName") or made.get(reference["name"])
        for reference in pod["spec"].get("resourceClaims") or ()
    )
    return [name for name in names if name]


def _existing(pod: Object, reference: str, claim_of: Get) -> bool:
    """Whether the claim in the pod's status exists and belongs to the pod."""
    name = _statuses(pod).get(reference)
    claim = claim_of(pod["metadata"]["namespace"], name) if name else None
    return claim is not None and owner_uid(claim) == pod["metadata"]["uid"]


def _statuses(pod: Object) -> dict[str, str]:
    entries = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return {entry["name"]: entry.get("resourceClaimName") or "" for entry in entries}


def _generated_before(owned: list[Object], reference: str) -> Object | None:
    """A claim generated for the reference whose name is not in the pod's status yet."""
    for claim in owned:
        if (claim["metadata"].get("annotations") or {}).get(POD_CLAIM_NAME) == reference:
            return claim
    return None


def _no_template(reference: str, template: str) -> TemplateMissing:
    return TemplateMissing(
        f'PodResourceClaim {reference}: resource claim template "{template}": '
        f'resourceclaimtemplate.resource.k8s.io "{template}" not found'
    )


def _base_name(pod: str, reference: str) -> str:
    base = f"{pod}-{reference}-"
    if len(base) <= _LONGEST_BASE:
        return base
    share = _LONGEST_BASE / len(base)
    return f"{pod[: int(len(pod) * share)]}-{reference[: int(len(reference) * share)]}"


def _reservations(pod: Object, claim_of: Get) -> list[PodEffect]:
    if not pod["spec"].get("nodeName") or is_done(pod):
        return []
    uid = pod["metadata"]["uid"]
    effects: list[PodEffect] = []
    for name in claims_of(pod):
        claim = claim_of(pod["metadata"]["namespace"], name)
        status = (claim or {}).get("status") or {}
        users = [consumer["uid"] for consumer in status.get("reservedFor") or ()]
        is_for_group = any(one.get("apiGroup") for one in status.get("reservedFor") or ())
        if claim and status.get("allocation") and uid not in users and not is_for_group:
            consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": uid}
            if len(users) < _MOST_RESERVATIONS:
                reserved = [*(status.get("reservedFor") or ()), consumer]
                effects.append(Reserve(_with_status(claim, reserved, keep_allocation=True)))
    return effects


def _still_uses(
    claim: Object, consumer: Object, pod_of: Get, is_deleted: Callable[[str], bool]
) -> bool | ReadPod:
    if consumer.get("apiGroup") or consumer.get("resource") != "pods":
        return True  # only pods are checked
    if is_deleted(consumer["uid"]):
        return False
    pod = pod_of(claim["metadata"]["namespace"], consumer["name"])
    if pod is None:
        return ReadPod(consumer["name"], consumer["uid"])
    return bool(pod["metadata"]["uid"] == consumer["uid"] and not is_done(pod))


def _owner(claim: Object) -> tuple[str, str]:
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == "Pod":
            return owner["name"], owner["uid"]
    return "", ""


def _owner_is_done(claim: Object, pod_of: Get) -> bool:
    """False if the pod is not in the cache: then the garbage collector deletes the claim."""
    name, uid = _owner(claim)
    pod = pod_of(claim["metadata"]["namespace"], name) if name else None
    return pod is not None and (pod["metadata"]["uid"] != uid or is_done(pod))


def _with_status(claim: Object, reserved: list[Object], *, keep_allocation: bool) -> Object:
    status = dict(claim.get("status") or {})
    status["reservedFor"] = reserved
    if not reserved:
        del status["reservedFor"]
    if not keep_allocation:
        status.pop("allocation", None)
    return claim | {"status": status}
