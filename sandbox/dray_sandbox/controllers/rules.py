"""What the resourceclaim-controller does next about one pod or one claim. Pure.

Follows ``pkg/controller/resourceclaim/controller.go`` of Kubernetes 1.36: ``syncPod`` and
``syncClaim``. Objects are JSON as the API server wrote them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dray.api.names import CLAIM_FINALIZER, POD_CLAIM_NAME
from dray.kube.ports import Object

_LONGEST_BASE = 57
"""Of a generated claim's name: the server appends six characters, 63 are allowed."""
_MOST_RESERVATIONS = 256

Get = Callable[[str, str], Object | None]
"""An object by namespace and name, from the watches' caches."""


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """Stamp a claim out of a template for a pod."""

    reference: str
    claim: Object


@dataclass(frozen=True, slots=True)
class RecordClaims:
    """Write generated claims' names into ``pod.status.resourceClaimStatuses``."""

    names: dict[str, str]
    """By reference."""


@dataclass(frozen=True, slots=True)
class Complain:
    """A Warning event on the pod, and another try after a growing pause."""

    message: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Reserve a claim for a pod that was bound without a scheduler's reservation."""

    claim: Object


PodEffect = CreateClaim | RecordClaims | Complain | Reserve


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """Replace the claim's status; fenced by its resourceVersion."""

    claim: Object


@dataclass(frozen=True, slots=True)
class DropFinalizer:
    """Remove the finalizer from the claim as it is after the effects before this one."""


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Delete a generated claim whose pod will not run."""


@dataclass(frozen=True, slots=True)
class AskForPod:
    """A pod that reserves the claim was never seen: ask the API server, then decide again."""

    name: str
    uid: str


ClaimEffect = UpdateStatus | DropFinalizer | DeleteClaim | AskForPod


def sync_pod(
    pod: Object, claim_of: Get, template_of: Get, owned: Iterable[Object]
) -> list[PodEffect]:
    """What the pod's references to claims need. ``owned`` are the claims it controls."""
    if is_deleting(pod) or is_done(pod):
        return []
    owned = list(owned)
    effects: list[PodEffect] = []
    found: dict[str, str] = {}
    for reference in pod["spec"].get("resourceClaims") or ():
        template_name = reference.get("resourceClaimTemplateName")
        if not template_name or _existing(pod, reference["name"], claim_of):
            continue
        orphan = _made_before(owned, reference["name"])
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
    """The claim that a template makes for one reference of a pod."""
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


def sync_claim(claim: Object, pod_of: Get, gone: Callable[[str], bool]) -> list[ClaimEffect]:
    """What the claim needs: stale reservations dropped, then its allocation and itself.

    ``gone`` says of a pod's uid that the pod was deleted.
    """
    status = claim.get("status") or {}
    reserved = status.get("reservedFor") or []
    remaining = []
    for consumer in reserved:
        keep = _still_uses(claim, consumer, pod_of, gone)
        if isinstance(keep, AskForPod):
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
    elif finalized and is_deleting(claim) and not remaining:
        if status.get("allocation"):
            effects.append(UpdateStatus(_with_status(claim, [], keep_allocation=False)))
        effects.append(DropFinalizer())
    if not remaining and not is_deleting(claim) and _owner_is_done(claim, pod_of):
        effects.append(DeleteClaim())
    return effects


def is_deleting(obj: Object) -> bool:
    """Whether the object has been deleted and waits for its finalizers or its grace."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_done(pod: Object) -> bool:
    """Whether the pod will not run (again): finished, or deleted before it had a node."""
    phase = (pod.get("status") or {}).get("phase")
    unplaced = is_deleting(pod) and not pod["spec"].get("nodeName")
    return phase in ("Succeeded", "Failed") or unplaced


def owner_uid(claim: Object) -> str:
    """The uid of the pod that a generated claim belongs to, or empty."""
    return _owner(claim)[1]


def claims_of(pod: Object) -> list[str]:
    """Names of the claims the pod uses, as far as they exist."""
    made = _statuses(pod)
    names = (
        reference.get("resourceClaimName") or made.get(reference["name"])
        for reference in pod["spec"].get("resourceClaims") or ()
    )
    return [name for name in names if name]


def _existing(pod: Object, reference: str, claim_of: Get) -> bool:
    """Whether the claim recorded for the reference is there and the pod's own."""
    name = _statuses(pod).get(reference)
    claim = claim_of(pod["metadata"]["namespace"], name) if name else None
    return claim is not None and owner_uid(claim) == pod["metadata"]["uid"]


def _statuses(pod: Object) -> dict[str, str]:
    entries = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return {entry["name"]: entry.get("resourceClaimName") or "" for entry in entries}


def _made_before(owned: list[Object], reference: str) -> Object | None:
    """A claim made for the reference whose name did not get into the pod's status."""
    for claim in owned:
        if (claim["metadata"].get("annotations") or {}).get(POD_CLAIM_NAME) == reference:
            return claim
    return None


def _no_template(reference: str, template: str) -> Complain:
    return Complain(
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
        if claim and status.get("allocation") and uid not in users:
            consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": uid}
            if len(users) < _MOST_RESERVATIONS:
                reserved = [*(status.get("reservedFor") or ()), consumer]
                effects.append(Reserve(_with_status(claim, reserved, keep_allocation=True)))
    return effects


def _still_uses(
    claim: Object, consumer: Object, pod_of: Get, gone: Callable[[str], bool]
) -> bool | AskForPod:
    if consumer.get("apiGroup") or consumer.get("resource") != "pods":
        return True  # not ours to judge
    if gone(consumer["uid"]):
        return False
    pod = pod_of(claim["metadata"]["namespace"], consumer["name"])
    if pod is None:
        return AskForPod(consumer["name"], consumer["uid"])
    return bool(pod["metadata"]["uid"] == consumer["uid"] and not is_done(pod))


def _owner(claim: Object) -> tuple[str, str]:
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == "Pod":
            return owner["name"], owner["uid"]
    return "", ""


def _owner_is_done(claim: Object, pod_of: Get) -> bool:
    """A pod that is not in the cache is left to the garbage collector."""
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
