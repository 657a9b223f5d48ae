"""The writes to Kubernetes that carry a decision out. Each is one call, fenced by a revision."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dray.api.claims import Allocation
from dray.api.names import (
    ALLOCATED,
    ALLOCATION_GATE,
    CLAIM_FINALIZER,
    DECISION,
    TRACEPARENT,
    VOID,
)
from dray.api.pods import Pod
from dray.kube.convert import status_to
from dray.kube.convert_claims import Consumer
from dray.kube.ports import CLAIMS, NO_ANNOTATIONS, PODS, ConflictError, Kube, Object
from dray_claim_controller.cache.cached_objects import CachedPod, CachedResourceClaim

Timeout = Callable[[], float | None]
"""How long the server may work on a write that is sent now. Raises LeaseExpiredError if nothing may
be written any more. Called after the read that fences a write, and right before the write."""


class ExecutionWrites:
    """The writes to claims and pods. All raise KubeError and LeaseExpiredError."""

    def __init__(self, kube: Kube, timeout_s: Timeout) -> None:
        self._kube = kube
        self._timeout_s = timeout_s

    async def mark(
        self, cached: CachedResourceClaim, attempt: int, traceparent: str = ""
    ) -> Object:
        """Write finalizer and attempt in one patch; the revision in its answer fences the commit.

        ``traceparent``: the position in the pod's trace, for the node-agent; empty if it is not
        sampled.
        """
        finalizers = list(cached.object["metadata"].get("finalizers") or ())
        if CLAIM_FINALIZER not in finalizers:
            finalizers.append(CLAIM_FINALIZER)
        annotations = {DECISION: str(attempt), ALLOCATED: None}
        if traceparent:
            annotations[TRACEPARENT] = traceparent
        return await self._patch(cached, {"finalizers": finalizers, "annotations": annotations})

    async def commit(
        self,
        cached: CachedResourceClaim,
        allocation: Allocation,
        *,
        reserved_for: Sequence[Consumer],
        timestamp_unix_s: float | None,
    ) -> Object:
        """Write the allocation, and with it the reservations."""
        status = status_to(allocation, timestamp_unix_s=timestamp_unix_s, reserved_for=reserved_for)
        return await self._patch_status(cached, status)

    async def void(
        self, cached: CachedResourceClaim, attempt: int, *, in_place_of_mark: bool = False
    ) -> Object:
        """Write that attempts up to ``attempt`` must not be committed any more.
        ``in_place_of_mark``: also remove the mark of the begun attempt."""
        annotations = {VOID: str(max(attempt, cached.claim.void)), ALLOCATED: None}
        if in_place_of_mark:
            annotations |= {DECISION: None, TRACEPARENT: None}
        return await self._patch(cached, {"annotations": annotations})

    async def clear(self, cached: CachedResourceClaim) -> Object:
        """Remove the allocation, and the reservations that came with it."""
        return await self._patch_status(cached, {"allocation": None, "reservedFor": None})

    async def announce(self, cached: CachedResourceClaim) -> Object:
        """Write the annotation that the user guide (§3.5) looks for."""
        patch = {"metadata": {"uid": cached.claim.uid, "annotations": {ALLOCATED: "true"}}}
        return await self._kube.patch(
            CLAIMS, cached.claim.name, patch, cached.claim.namespace, timeout_s=self._timeout_s()
        )

    async def lift_gate(self, cached: CachedPod, pod: Pod) -> Object:
        """Remove dray's scheduling gate, and no other. Raises ConflictError if the gates
        changed."""
        gates = [gate["name"] for gate in cached.object["spec"].get("schedulingGates") or ()]
        if ALLOCATION_GATE not in gates:
            raise ConflictError(f"pod {pod.namespace}/{pod.name} has no gate {ALLOCATION_GATE}")
        path = f"/spec/schedulingGates/{gates.index(ALLOCATION_GATE)}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": f"{path}/name", "value": ALLOCATION_GATE},
            {"op": "remove", "path": path},
        ]
        return await self._kube.patch(
            PODS, pod.name, patch, pod.namespace, kind="json", timeout_s=self._timeout_s()
        )

    async def keep_unbound(self, pod: Pod, voids: str) -> Object:
        """Write to the pod by which attempts it is never bound. Raises ConflictError if the pod
        changed, for example because it was bound."""
        fence = {"uid": pod.uid, "resourceVersion": str(pod.resource_version)}
        patch = {"metadata": {**fence, "annotations": {VOID: voids}}}
        return await self._kube.patch(
            PODS, pod.name, patch, pod.namespace, timeout_s=self._timeout_s()
        )

    async def bind(
        self, pod: Pod, node: str, annotations: Mapping[str, str] = NO_ANNOTATIONS
    ) -> None:
        """POST pods/binding. Raises ConflictError if the pod changed: it may name attempts now that
        are rolled back."""
        await self._kube.bind(
            pod.name,
            pod.namespace,
            uid=pod.uid,
            node=node,
            annotations=annotations,
            resource_version=pod.resource_version,
            timeout_s=self._timeout_s(),
        )

    async def _patch(self, cached: CachedResourceClaim, metadata: Mapping[str, Any]) -> Object:
        claim = cached.claim
        patch = {"metadata": {**_fence(cached), **metadata}}
        return await self._kube.patch(
            CLAIMS, claim.name, patch, claim.namespace, timeout_s=self._timeout_s()
        )

    async def _patch_status(self, cached: CachedResourceClaim, status: Mapping[str, Any]) -> Object:
        claim = cached.claim
        patch = {"metadata": _fence(cached), "status": status}
        return await self._kube.patch(
            CLAIMS,
            claim.name,
            patch,
            claim.namespace,
            subresource="status",
            timeout_s=self._timeout_s(),
        )


def _fence(cached: CachedResourceClaim) -> dict[str, str]:
    return {"uid": cached.claim.uid, "resourceVersion": str(cached.claim.resource_version)}
