"""Rules of the API server: defaults, immutability, status subresources.

Each rule names its source in Kubernetes; the contract suite compares them with the real server.
"""

from typing import Any, Final

from dray.api.names import API_GROUP
from dray.kube.ports import (
    CLAIMS,
    CRDS,
    NODES,
    PODS,
    SLICES,
    TEMPLATES,
    ConflictError,
    Object,
    RefusedError,
    Resource,
)

_WITH_STATUS: Final = (PODS, NODES, CLAIMS, CRDS)
_STATUS_AT_CREATE: Final = (NODES,)
"""Kinds whose status may be set at creation."""
_MUTABLE_POD_SPEC: Final = (
    "schedulingGates",
    "tolerations",
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
)
_MUTABLE_WHILE_GATED: Final = ("nodeSelector", "affinity")


def _has_status(resource: Resource) -> bool:
    """Whether the kind has a status subresource."""
    return resource in _WITH_STATUS or resource.group == API_GROUP


def has_generation(resource: Resource) -> bool:
    """Whether the kind counts the changes of its spec."""
    return resource.group == API_GROUP


def prepare_create(resource: Resource, obj: Object) -> None:
    """Set defaults and drop fields, in place. Raises RefusedError (422)."""
    if _has_status(resource) and resource not in _STATUS_AT_CREATE:
        obj.pop("status", None)
    if resource == PODS:
        obj["spec"].setdefault("schedulerName", "default-scheduler")
        obj["spec"].setdefault("priority", 0)
        obj["status"] = {"phase": "Pending"}
    if resource == CLAIMS:
        _default_claim(obj.get("spec") or {})
    if resource == TEMPLATES:
        _default_claim(obj["spec"].get("spec") or {})


def check_update(resource: Resource, old: Object, new: Object, subresource: str) -> None:
    """Check that immutable fields do not change. Raises RefusedError (422)."""
    if resource == CLAIMS and subresource == "status":
        _check_claim_status(old, new)
    elif resource in (CLAIMS, TEMPLATES):
        # ValidateResourceClaimUpdate, ValidateResourceClaimTemplateUpdate
        if old.get("spec") != new.get("spec"):
            raise _invalid(resource, new, "spec: field is immutable")
    elif resource == SLICES:
        _check_slice(old["spec"], new["spec"], new)
    elif resource == PODS and not subresource:
        _check_pod(old, new)


def merge_update(resource: Resource, old: Object, new: Object, subresource: str) -> Object:
    """The object after the write. A status write keeps all other fields; another write keeps the
    status."""
    if subresource == "status":
        # ResetObjectMetaForStatus: labels, annotations, finalizers are not changed.
        result = {**old, "metadata": dict(old["metadata"])}
        result.pop("status", None)
        status = new.get("status")
        if status and resource == CLAIMS and not status.get("allocation"):
            # dropDeallocatedStatusDevices: status.devices is removed with the allocation.
            status = {name: value for name, value in status.items() if name != "devices"}
        return {**result, "status": status} if status else result
    result = dict(new)
    if _has_status(resource):
        result.pop("status", None)
        if "status" in old:
            result["status"] = old["status"]
    return result


def check_binding(pod: Object, uid: str, resource_version: int | None) -> None:
    """Check that the pod may be bound. Raises ConflictError."""
    name, revision = pod["metadata"]["name"], pod["metadata"]["resourceVersion"]
    problem = ""
    if uid and pod["metadata"]["uid"] != uid:
        problem = f"its uid is {pod['metadata']['uid']}, not {uid}"
    elif resource_version is not None and revision != str(resource_version):
        problem = f"its resourceVersion is {revision}, not {resource_version}"
    elif pod["metadata"].get("deletionTimestamp"):
        problem = "it is being deleted"
    elif pod["spec"].get("nodeName"):
        problem = f"it is already assigned to node {pod['spec']['nodeName']}"
    elif pod["spec"].get("schedulingGates"):
        problem = "it has non-empty .spec.schedulingGates"
    if problem:
        raise ConflictError(f'pods/binding "{name}": {problem}')


def _default_claim(spec: dict[str, Any]) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        exactly = request.get("exactly")
        if exactly is None:
            if not request.get("firstAvailable"):
                raise RefusedError(
                    f"spec.devices.requests[{request.get('name')}]: Required value: exactly one "
                    "of `exactly` or `firstAvailable` is required",
                    422,
                )
            continue
        if not exactly.get("deviceClassName"):
            raise RefusedError("exactly.deviceClassName: Required value", 422)
        exactly.setdefault("allocationMode", "ExactCount")
        if exactly["allocationMode"] == "ExactCount":
            exactly.setdefault("count", 1)


def _check_claim_status(old: Object, new: Object) -> None:
    before = old.get("status") or {}
    after = new.get("status") or {}
    allocation = after.get("allocation")
    reserved = after.get("reservedFor") or []
    if reserved and not allocation:
        raise _invalid(CLAIMS, new, "status.reservedFor: may not be set when not allocated")
    if before.get("allocation") and allocation and allocation != before["allocation"]:
        raise _invalid(CLAIMS, new, "status.allocation: field is immutable")
    known = {entry["uid"] for entry in before.get("reservedFor") or ()}
    if old["metadata"].get("deletionTimestamp") and any(e["uid"] not in known for e in reserved):
        raise _invalid(
            CLAIMS, new, "status.reservedFor: new entries may not be added while deleting"
        )
    names = {request["name"] for request in old["spec"]["devices"].get("requests") or ()}
    for result in ((allocation or {}).get("devices") or {}).get("results") or ():
        if result["request"].split("/")[0] not in names:
            raise _invalid(
                CLAIMS,
                new,
                f"status.allocation.devices.results: {result['request']!r}: must be the name of "
                "a request in the claim",
            )


def _check_slice(old: dict[str, Any], new: dict[str, Any], obj: Object) -> None:
    for field, before, after in (
        ("driver", old.get("driver"), new.get("driver")),
        ("pool.name", old["pool"]["name"], new["pool"]["name"]),
        ("nodeName", old.get("nodeName"), new.get("nodeName")),
    ):
        if before != after:
            raise _invalid(SLICES, obj, f"spec.{field}: field is immutable")


def _check_pod(old: Object, new: Object) -> None:
    before = {gate["name"] for gate in old["spec"].get("schedulingGates") or ()}
    after = {gate["name"] for gate in new["spec"].get("schedulingGates") or ()}
    if after - before:
        raise _invalid(PODS, new, "spec.schedulingGates: Forbidden: only deletion is allowed")
    free = (*_MUTABLE_POD_SPEC, *(_MUTABLE_WHILE_GATED if before else ()))
    if _fixed(old["spec"], free) != _fixed(new["spec"], free):
        raise _invalid(
            PODS,
            new,
            "spec: Forbidden: pod updates may not change fields other than images, "
            "tolerations, deadlines and scheduling gates",
        )


def _fixed(spec: dict[str, Any], free: tuple[str, ...]) -> dict[str, Any]:
    rest = {name: value for name, value in spec.items() if name not in free}
    rest["containers"] = [
        {name: value for name, value in container.items() if name != "image"}
        for container in spec.get("containers") or ()
    ]
    return rest


def _invalid(resource: Resource, obj: Object, why: str) -> RefusedError:
    name = obj["metadata"]["name"]
    return RefusedError(f'{resource.kind} "{name}" is invalid: {why}', 422)
