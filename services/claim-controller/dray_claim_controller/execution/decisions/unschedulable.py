"""When an allocation that kube-scheduler can't use is rolled back. Pure.

kube-scheduler clears an allocation only if another node got as far as the DRA filter; a pod that
fits no other node would wait for its claim's node for ever. The attempts whose allocation it has
cleared are voided: a fact shows only the newest state of a claim, so an allocation that was written
and cleared between two facts would look like one that is still to be written.
"""

from collections.abc import Mapping
from typing import Any

from dray.api.names import OWNER_DRAY
from dray.api.pods import Pod
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.execution.decisions.timers import Due, due

_UNSCHEDULABLE, _SCHEDULER_ERROR = "Unschedulable", "SchedulerError"
"""Reasons of the condition PodScheduled, besides ``SchedulingGated``."""
_FIRST, _LATER = "first", "later"


def _is_unschedulable(cache: ObjectCache, cached: CachedPod) -> bool:
    """Whether kube-scheduler refuses the pod although our allocation waits for it.

    False while kube-scheduler makes room there: it has nominated the allocation's node, and the
    pods that it evicts need time to end.
    """
    pod = cached.pod
    if pod is None or not _is_with_kube_scheduler(pod):
        return False
    waiting = [
        held.claim.allocation
        for held in cache.claims_of(pod)
        if held.claim.allocation is not None and held.claim.decision and not held.claim.reserved_for
    ]
    if not waiting:
        return False
    status = cached.object.get("status") or {}
    reason, nominated = _unscheduled(status), status.get("nominatedNodeName") or ""
    return reason in (_UNSCHEDULABLE, _SCHEDULER_ERROR) and any(
        not (reason == _UNSCHEDULABLE and nominated and allocation.node == nominated)
        for allocation in waiting
    )


def _was_rolled_back(cache: ObjectCache, cached: CachedPod) -> bool:
    """Whether an earlier attempt was rolled back: then kube-scheduler's refusal may be about that
    attempt, and it may take a while to try the pod again."""
    return cached.pod is not None and any(held.claim.void for held in cache.claims_of(cached.pod))


def unschedulable_attempt(cache: ObjectCache, cached: CachedPod) -> str | None:
    """Which attempt kube-scheduler refuses, ``_FIRST`` or ``_LATER``; None: it refuses none."""
    if not _is_unschedulable(cache, cached):
        return None
    return _LATER if _was_rolled_back(cache, cached) else _FIRST


def cleared(cache: ObjectCache, cached: CachedPod) -> tuple[str, ...] | None:
    """UIDs of the pod's claims whose allocation kube-scheduler cleared; None if there are none.

    The gate is lifted when all claims are allocated as decided. So an attempt that has no
    allocation after that was cleared, or is being written again: call this only if no execution of
    the pod runs.
    """
    pod = cached.pod
    if pod is None or not _is_with_kube_scheduler(pod):
        return None
    found = tuple(
        held.claim.uid
        for held in cache.claims_of(pod)
        if held.claim.allocation is None
        and held.claim.decision > held.claim.void
        and not held.claim.deleting
    )
    return found or None


def _is_with_kube_scheduler(pod: Pod) -> bool:
    placed = pod.binder == OWNER_DRAY or pod.node or pod.deleting
    return not (placed or pod.gated or pod.other_gates)


def _unscheduled(status: Mapping[str, Any]) -> str:
    """Why kube-scheduler has not placed the pod, by its reason; empty if it didn't say."""
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("reason") or "")
    return ""


class Refused(RecordedRule[Due], frozen=True, kw_only=True, tag="refused"):
    """UIDs of the pods whose allocation is rolled back: kube-scheduler refuses them."""

    after_s: float
    now_s: float
    """Monotonic."""
    since_s: dict[str, float]
    backoff_s: float = 0.0
    """How long kube-scheduler may rest between two attempts to place a pod."""

    def answer(self, cache: ObjectCache) -> Due:
        refused = cache.select(unschedulable_attempt).values
        return due(
            cache.in_order(refused),
            self.since_s,
            now_s=self.now_s,
            after_s=self.after_s,
            more_s={uid: self.backoff_s for uid, attempt in refused.items() if attempt == _LATER},
        )

    def polled(self) -> str:
        return "refused"


class Cleared(RecordedRule[tuple[tuple[str, str], ...]], frozen=True, kw_only=True, tag="cleared"):
    """Pods and claims, by UID, whose allocation kube-scheduler cleared after the gate was
    lifted: their attempts are voided. Those that are ``executing`` are left out; sorted."""

    executing: tuple[str, ...] = ()

    def answer(self, cache: ObjectCache) -> tuple[tuple[str, str], ...]:
        found, executing = cache.select(cleared).values, frozenset(self.executing)
        return tuple(
            (uid, claim)
            for uid in cache.in_order(found)
            if uid not in executing
            for claim in found[uid]
        )

    def polled(self) -> str:
        return "cleared"
