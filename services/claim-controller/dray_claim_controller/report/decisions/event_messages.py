"""BindRequests, events and their messages, and the execution steps for the bus. Pure."""

import hashlib
from typing import Any

from dray.api.claims import Allocation
from dray.api.names import CONDITIONS_PENDING, DEDICATED_TAINT, PLACEMENT
from dray.api.placement import overridden, policy_placement
from dray.api.pods import Pod, Policy
from dray.api.quantities import readable_quantity
from dray.kube.bind_request import EXPLANATION_LIMIT
from dray.kube.convert import allocation_to, time_to
from dray.kube.node_problem import NODE_LOST
from dray.kube.pod_end import PodEnd
from dray.kube.ports import BIND_REQUESTS, EVENTS, POOLS, Object
from dray.messages.decisions import PodDecision, Waiting
from dray.messages.events import ExecutionStep
from dray.reasons import Reason, in_words
from dray_claim_controller.cache.cached_objects import CachedResourceClaim, ObjectProblem
from dray_claim_controller.execution.decisions.executions import DecisionVersions
from dray_claim_controller.execution.progress import Progress

COMPONENT = "tensor-fusion.ai/claim-controller"
_POOL_CLAUSE = ".pool_name == "
_NO_NODE = "has no node to allocate on"
_EVENT_MESSAGE_LIMIT = 1024
"""``NoteLengthLimit`` of events.k8s.io."""


def decided_spec(decision: PodDecision) -> dict[str, Any]:
    """``BindRequest.spec`` of a decision."""
    return {
        "podUID": decision.pod_uid,
        "selectedNode": decision.node,
        "attempt": max((claim.attempt for claim in decision.claims), default=0),
        "binder": decision.binder,
        "resourceClaimAllocations": [
            {"name": claim.name, "allocation": allocation_to(claim.allocation)}
            for claim in decision.claims
        ],
    }


def allocated_spec(pod: Pod, claims: list[CachedResourceClaim]) -> dict[str, Any]:
    """``BindRequest.spec`` of a pod that runs with what it got."""
    return {
        "podUID": pod.uid,
        "selectedNode": pod.node,
        "attempt": max((cached.claim.decision for cached in claims), default=0),
        "binder": pod.binder,
        "resourceClaimAllocations": [
            {"name": cached.claim.name, "allocation": allocation_to(cached.claim.allocation)}
            for cached in claims
            if cached.claim.allocation is not None
        ],
    }


def undecided_spec(pod_uid: str) -> dict[str, Any]:
    """``BindRequest.spec`` of a pod that waits: a place for its explanation."""
    return {"podUID": pod_uid, "selectedNode": "", "resourceClaimAllocations": []}


def waiting_status(waiting: Waiting) -> dict[str, Any]:
    """``BindRequest.status`` of a pod that waits."""
    return undecided_status(in_words(waiting.reasons, EXPLANATION_LIMIT))


def undecided_status(explanation: str) -> dict[str, Any]:
    """The same for a reason in words; if it is empty, there is no explanation."""
    return {
        "phase": "Pending",
        "reason": "Waiting",
        "explanation": _cut(explanation) or None,
        "decidedBy": None,
    }


def _cut(explanation: str) -> str:
    """The explanation, cut to as many bytes as the field holds."""
    return explanation.encode()[:EXPLANATION_LIMIT].decode(errors="ignore")


def decided_by(
    by: DecisionVersions | None, policy: Policy | None, pod: Object, known: Object | None
) -> dict[str, Any]:
    """``BindRequest.status.decidedBy`` as a part of the status; empty if the decision's record is
    not at hand, so that what the object says stays.

    ``policy`` is the pool's policy now, ``known`` the BindRequest. The mode is that of the policy
    if the policy has not changed since the decision, else the one written before.
    """
    if by is None:
        return {}
    before = ((known or {}).get("status") or {}).get("decidedBy") or {}
    found: dict[str, Any] = {"placement": None, "policy": None}
    if by.policy_version == (0 if policy is None else policy.version):
        own = (pod["metadata"].get("annotations") or {}).get(PLACEMENT, "")
        placement = overridden(policy_placement(policy), own, "").words
        found = {"placement": placement, "policy": None if policy is None else policy.name}
    elif before.get("policyVersion") == by.policy_version:
        found = {name: before.get(name) for name in found}
    versions = {"policyVersion": by.policy_version, "learnedVersion": by.learned_version}
    return {"decidedBy": versions | found}


def binding_status(by: dict[str, Any]) -> dict[str, Any]:
    """``BindRequest.status`` while the decision is carried out. ``by``: ``decided_by``."""
    return {"phase": "Binding", "reason": "Decided", "explanation": None} | by


def awaiting_status(detail: str) -> dict[str, Any]:
    """``BindRequest.status`` while the devices are not ready for the pod."""
    return {
        "phase": "Binding",
        "reason": CONDITIONS_PENDING,
        "explanation": _cut(detail),
    }


def awaiting_devices(node: str, detail: str) -> str:
    """An event's message while the devices are not ready for the pod."""
    return f"waiting for binding conditions for device on node {node}: {detail}"


def never_ready(node: str, detail: str) -> str:
    """An event's message once waiting for the devices has ended."""
    return f"rolling back the devices allocated on node {node}: {detail}"


def not_carried_out(node: str, detail: str) -> str:
    """An event's message if Kubernetes refuses the writes of a decision."""
    return f"the allocation on node {node} can't be carried out, and is given up: {detail}"


def succeeded_status(by: dict[str, Any]) -> dict[str, Any]:
    """``BindRequest.status`` of a pod that is bound with its devices. ``by``: ``decided_by``."""
    return {"phase": "Succeeded", "reason": "Bound", "explanation": None} | by


def ended_status(end: PodEnd) -> dict[str, Any]:
    """``BindRequest.status`` of a pod that has ended: Failed if it never ran."""
    return {
        "phase": "Succeeded" if end.ran else "Failed",
        "reason": end.reason,
        "explanation": _cut(end.words()),
    }


def troubled_status(reason: str, node: str, problem: str) -> dict[str, Any]:
    """``BindRequest.status`` of a bound pod whose node has a problem: Failed if the node is gone,
    which ends what the pod did there."""
    return {
        "phase": "Failed" if reason == NODE_LOST else "Succeeded",
        "reason": reason,
        "explanation": _cut(f"its node {node} {problem}"),
    }


def failed_status(reason: str, detail: str, failed_before: int) -> dict[str, Any]:
    """``BindRequest.status`` of a failed attempt."""
    return {
        "phase": "Failed",
        "reason": reason,
        "explanation": _cut(detail),
        "failedAttempts": failed_before + 1,
    }


def with_summary(pod: Pod, spec: dict[str, Any]) -> dict[str, Any]:
    """``BindRequest.spec`` with what ``kubectl get`` shows of it."""
    devices = sum(
        len(claim["allocation"]["devices"].get("results") or ())
        for claim in spec["resourceClaimAllocations"]
    )
    return {**spec, "pool": pod.pool, "devices": devices}


def bind_request(pod: Pod, spec: dict[str, Any]) -> Object:
    """A BindRequest of the pod's name, owned by it."""
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.name,
        "uid": pod.uid,
        "controller": True,
    }
    return {
        "apiVersion": BIND_REQUESTS.api_version,
        "kind": BIND_REQUESTS.kind,
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "labels": {"pod-name": pod.name[:63].rstrip("-.")},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def in_short(allocation: Allocation, node: str) -> str:
    """Devices and amounts on one line, such as ``gpu-0 on node-1 (virtual_vram 16Gi)``; includes
    the pool if it is not named after the ``node``."""
    parts = []
    for device in allocation.devices:
        amounts = ", ".join(
            f"{name.rpartition('/')[2]} {readable_quantity(amount)}"
            for name, amount in device.consumed.items()
            if amount != "0"
        )
        pool = "" if device.id.pool == node else f" of pool {device.id.pool}"
        parts.append(f"{device.id.device}{pool} on {node}" + (f" ({amounts})" if amounts else ""))
    return "; ".join(parts)


def reference(about: ObjectProblem) -> Object:
    """An object as an Event's ``involvedObject``."""
    found = {
        "apiVersion": about.resource.api_version,
        "kind": about.resource.kind,
        "name": about.name,
        "uid": about.uid,
    }
    return found | ({"namespace": about.namespace} if about.namespace else {})


def problem(about: ObjectProblem) -> str:
    """An event's message about an object that dray can't take as it is."""
    return (
        f"{about.resource.kind} {about.name}: {about.why}. Its devices stay allocated, and nothing "
        "further is decided about it"
    )


def pod_reference(pod: Pod) -> Object:
    """A pod as an Event's ``involvedObject``."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
    }


def pool_reference(pool: Object) -> Object:
    """A GPUPool as an Event's ``involvedObject``."""
    metadata = pool["metadata"]
    return {
        "apiVersion": POOLS.api_version,
        "kind": POOLS.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def scheduled(pod: Pod, node: str) -> str:
    """kube-scheduler's message about a pod that it has bound."""
    return f"Successfully assigned {pod.namespace}/{pod.name} to {node}"


def may_pass_soon(reason: Reason) -> bool:
    """Whether a pod waits for something that dray does when a pool is new: its nodes become
    members, get its taint, and publish its name."""
    if reason.kind == "clause":
        unpublished = reason.nearest is not None and reason.nearest.seen == '""'
        return _POOL_CLAUSE in reason.what and unpublished
    is_taint = reason.what.startswith(f"node taint {DEDICATED_TAINT}=") and "missing" in reason.what
    return is_taint or reason.what.endswith(_NO_NODE)


def event(
    about: Object,
    reason: str,
    message: str,
    *,
    warning: bool,
    instance: str,
    now_unix_s: float,
    component: str = COMPONENT,
    action: str = "",
) -> Object:
    """An Event about an object. One name per object and reason, so that repetitions are counted."""
    digest = hashlib.sha256(f"{about['uid']}/{reason}".encode()).hexdigest()[:16]
    now = time_to(now_unix_s)
    # kubectl looks here for events about objects without a namespace.
    namespace = about.get("namespace") or "default"
    name = about["name"][:230].rstrip("-.")
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{name}.{digest}", "namespace": namespace},
        "involvedObject": about,
        "reason": reason,
        "message": message.encode()[:_EVENT_MESSAGE_LIMIT].decode(errors="ignore"),
        "type": "Warning" if warning else "Normal",
        "source": {"component": component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "reportingComponent": component,
        "reportingInstance": instance[:128],
    } | ({"action": action} if action else {})


def execution_step(progress: Progress, now_unix_s: float) -> ExecutionStep:
    """The step that an execution made, for the pod's timeline."""
    decision = progress.execution.decision
    return ExecutionStep(
        pod_uid=decision.pod_uid,
        namespace=decision.namespace,
        name=decision.name,
        claim=progress.claim or ",".join(claim.name for claim in decision.claims),
        attempt=progress.execution.attempt,
        step=progress.step,
        now_unix_s=now_unix_s,
        detail=progress.detail,
        traceparent=decision.traceparent,
    )


def repeated(known: Object, again: Object) -> dict[str, Any]:
    """The patch that counts ``again`` as a repetition of the existing event ``known``."""
    return {
        "message": again["message"],
        "lastTimestamp": again["lastTimestamp"],
        "count": int(known.get("count") or 1) + 1,
    }
