"""Pods that have all their devices, have not started, and whose decision is in no log. Pure.

The log of an ended epoch is not read any more, but what it committed stays in
``ResourceClaim.status``. Only the binding is missing, or the gate is still there. A deleted claim
also counts while it is reserved for the pod: Kubernetes keeps it that long.
"""

from dray.api.names import OWNER_DRAY
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.cache.cached_objects import CachedPod, CachedResourceClaim
from dray_claim_controller.cache.groups import is_reserved_for, may_start
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.execution.decisions.executions import Execution
from dray_claim_controller.execution.decisions.next_step import (
    decided,
)
from dray_claim_controller.execution.decisions.timers import Due, due


def adopted(cache: ObjectCache, cached: CachedPod) -> Execution | None:
    """The execution that binds or ungates the pod; None: there is nothing left to do."""
    pod = cached.pod
    if pod is not None and pod.member is not None and not may_start(cache, pod.member.group):
        return None  # Its group is decided again once this allocation is rolled back.
    return held(cache, cached)


def held(cache: ObjectCache, cached: CachedPod) -> Execution | None:
    """An execution made from a pod's allocated claims; None if some are not allocated, or the pod
    is bound, ungated or ending."""
    pod = cached.pod
    if pod is None or pod.node or pod.deleting or cached.terminal:
        return None
    dray_binds = pod.binder == OWNER_DRAY
    if not dray_binds and not pod.gated:
        return None
    claims = cache.claims_of(pod)
    decisions = [made for one in claims if (made := _decision(one)) is not None]
    nodes = {made.allocation.node for made in decisions}
    if not decisions or len(decisions) < len(pod.claims) or len(nodes) != 1:
        return None
    # A claim that was deleted and is not reserved is about to go, and another is made.
    reserved = (one.claim for one in claims if dray_binds or one.claim.deleting)
    if not all(is_reserved_for(cache, claim, pod) for claim in reserved):
        return None
    return Execution(
        domain=pod.pool,
        decision=PodDecision(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=nodes.pop(),
            binder=pod.binder,
            claims=tuple(decisions),
            request_id=pod.request_id,
            traceparent=pod.traceparent,
        ),
        committed=frozenset(made.uid for made in decisions),
    )


def is_unfinished(cache: ObjectCache, cached: CachedPod) -> bool | None:
    """True if there is something to finish, else None."""
    return None if adopted(cache, cached) is None else True


def _decision(cached: CachedResourceClaim) -> ClaimDecision | None:
    claim = cached.claim
    if claim.allocation is None or not claim.allocation.node:
        return None
    return decided(claim) if claim.void < claim.decision else None


class UnfinishedPlacements(
    RecordedRule[tuple[Execution, ...]], frozen=True, kw_only=True, tag="halfway"
):
    """Executions of pods that have all their devices and lack the last step.

    ``UnfinishedPods`` gives the pods that have lacked it for long enough.
    """

    pods: tuple[str, ...]

    def answer(self, cache: ObjectCache) -> tuple[Execution, ...]:
        found = (adopted(cache, cache.pods[uid]) for uid in self.pods if uid in cache.pods)
        return tuple(execution for execution in found if execution is not None)


class GroupRollbacks(
    RecordedRule[tuple[Execution, ...]], frozen=True, kw_only=True, tag="held-together"
):
    """Executions made from the allocated claims of these pods, to be rolled back with their
    group."""

    pods: tuple[str, ...]

    def answer(self, cache: ObjectCache) -> tuple[Execution, ...]:
        found = (held(cache, cache.pods[uid]) for uid in self.pods if uid in cache.pods)
        return tuple(execution for execution in found if execution is not None)


class UnfinishedPods(RecordedRule[Due], frozen=True, kw_only=True, tag="started-halfway"):
    """UIDs of the pods that have all their devices and lack the last step."""

    after_s: float
    now_s: float
    since_s: dict[str, float]

    def answer(self, cache: ObjectCache) -> Due:
        unfinished = cache.select(is_unfinished).values
        return due(cache.in_order(unfinished), self.since_s, now_s=self.now_s, after_s=self.after_s)

    def polled(self) -> str:
        return "halfway"
