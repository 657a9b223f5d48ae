"""Pods and nodes (core/v1) as domain values."""

from collections.abc import Mapping
from typing import Any, Final

from dray.api.names import (
    ALLOCATION_GATE,
    CLAIM_REFERENCE,
    DEFAULT_QOS,
    DEFAULT_SCHEDULER,
    DRA_ENABLED,
    GPU_RESOURCE,
    GPU_SHARE_RESOURCE,
    GPUPOOL,
    QOS_LABEL,
    REQUEST_ID,
    SHAPE,
    TRACEPARENT,
)
from dray.api.pods import Node, Pod, PodClaim, accounting_claim
from dray.api.quantities import parse_quantity
from dray.kube.convert_groups import group_member
from dray.kube.convert_metadata import (
    is_deleting,
    label,
    revision_of,
    taints_from,
    time_from,
)
from dray.kube.convert_needs import pod_needs
from dray.kube.convert_requests import allocatable_of
from dray.kube.ports import Object

_EXTENDED_RESOURCES: Final = "(extended resources)"
"""Stands for an entry of ``spec.resourceClaims``. Names of entries can't have such characters."""


def pod_from(obj: Object) -> Pod:
    """A pod. Claims that do not exist yet have no name."""
    metadata = obj["metadata"]
    spec = obj["spec"]
    status = obj.get("status") or {}
    annotations = metadata.get("annotations") or {}
    gates = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    return Pod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        resource_version=revision_of(obj),
        pool=str(annotations.get(GPUPOOL, "")),
        scheduler=spec.get("schedulerName") or DEFAULT_SCHEDULER,
        gated=ALLOCATION_GATE in gates,
        other_gates=bool(gates) and any(gate != ALLOCATION_GATE for gate in gates),
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        deleting=is_deleting(obj),
        priority=int(spec.get("priority") or 0),
        needs=pod_needs(spec),
        claims=_claims(obj),
        request_id=str(annotations.get(REQUEST_ID, "")),
        traceparent=str(annotations.get(TRACEPARENT, "")),
        created_unix_s=time_from(metadata.get("creationTimestamp")),
        member=group_member(obj),
    )


def node_from(obj: Object) -> Node:
    """A node without its pool and its pods' requests. The caller adds them."""
    metadata = obj["metadata"]
    spec = obj.get("spec") or {}
    status = obj.get("status") or {}
    allocatable = status.get("allocatable") or status.get("capacity") or {}
    given = allocatable_of(allocatable)
    return Node(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        qos=label(obj, QOS_LABEL) or DEFAULT_QOS,
        cpu_milli=given.cpu_milli,
        memory_bytes=given.memory_bytes,
        pods=parse_quantity(str(allocatable.get("pods", "0"))).value,
        resources=given.resources,
        labels=dict(metadata.get("labels") or {}),
        taints=taints_from(spec.get("taints")),
        unschedulable=bool(spec.get("unschedulable")),
        ready=_is_ready(status),
    )


def has_accounting_claim(pod: Mapping[str, Any]) -> bool:
    """Whether dray places the pod without Dynamic Resource Allocation: it refers to no claim, and
    dray makes one that accounts for it."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return SHAPE in annotations and annotations.get(DRA_ENABLED) == "false"


def claim_names(pod: Mapping[str, Any]) -> dict[str, str]:
    """The names of a pod's claims, by entry of ``spec.resourceClaims``. Claims that are not
    generated (yet) are left out. The claim that accounts for a pod has the key CLAIM_REFERENCE; the
    claim that kube-scheduler made for extended resources has the key ``_EXTENDED_RESOURCES``."""
    made = {
        entry["name"]: entry.get("resourceClaimName") or ""
        for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    names = {
        entry["name"]: name
        for entry in (pod.get("spec") or {}).get("resourceClaims") or ()
        if (name := entry.get("resourceClaimName") or made.get(entry["name"], ""))
    }
    if has_accounting_claim(pod):
        names[CLAIM_REFERENCE] = accounting_claim(pod["metadata"]["uid"])
    if name := _extended_resources(pod).get("resourceClaimName"):
        names[_EXTENDED_RESOURCES] = name
    return names


def claim_uses(pod: Mapping[str, Any], container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A container's references to the pod's claims. A container that requests GPUs from the device
    plugin gets the devices of the accounting claim."""
    extended = [
        {"name": _EXTENDED_RESOURCES, "request": one["requestName"]}
        for one in _extended_resources(pod).get("requestMappings") or ()
        if one["containerName"] == container["name"]
    ]
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    asks = GPU_RESOURCE in limits or GPU_SHARE_RESOURCE in limits
    accounting = [{"name": CLAIM_REFERENCE}] if asks else []
    return [*(resources.get("claims") or ()), *accounting, *extended]


def _extended_resources(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The claim for a pod's extended resources that DeviceClasses provide (Kubernetes 1.36)."""
    return (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}


def _claims(pod: Mapping[str, Any]) -> tuple[PodClaim, ...]:
    templates = {
        entry["name"]: entry.get("resourceClaimTemplateName") or ""
        for entry in pod["spec"].get("resourceClaims") or ()
    }
    names = claim_names(pod)
    return tuple(
        PodClaim(reference, names.get(reference, ""), templates.get(reference, ""))
        for reference in dict.fromkeys((*templates, *names))
    )


def _is_ready(status: Mapping[str, Any]) -> bool:
    # As in kube-scheduler: without a Ready condition only taints count.
    return all(
        condition["status"] == "True"
        for condition in status.get("conditions") or ()
        if condition["type"] == "Ready"
    )
