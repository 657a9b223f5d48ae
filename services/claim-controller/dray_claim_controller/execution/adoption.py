"""Pods that have all their devices and were left halfway: whose order is in no log. Pure.

The log of an epoch that is over says nothing any more, but what it committed stays in
``ResourceClaim.status``. Such a pod only lacks its binding, or the lifting of its gate.
"""

from dray.api.names import OWNER_DRAY
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.cache.cached_objects import CachedPod, CachedResourceClaim
from dray_claim_controller.cache.groups import may_start
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.execution.decisions import (
    decided,
)
from dray_claim_controller.execution.executions import Execution
from dray_claim_controller.timers import Due, due


def adopted(cache: ObjectCache, cached: CachedPod) -> Execution | None:
    """The order that finishes what is there, or None where there is nothing to finish."""
    pod = cached.pod
    if pod is not None and pod.member is not None and not may_start(cache, pod.member.group):
        return None  # Its group is decided again once this allocation is taken back.
    return held(cache, cached)


def held(cache: ObjectCache, cached: CachedPod) -> Execution | None:
    """The order that a pod's allocated claims amount to; None where some are not allocated, or the
    pod is on its way."""
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
    if dray_binds and any(pod.uid not in one.claim.reserved_for for one in claims):
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


def is_halfway(cache: ObjectCache, cached: CachedPod) -> bool | None:
    """True if there is something to finish, else None."""
    return None if adopted(cache, cached) is None else True


def _decision(cached: CachedResourceClaim) -> ClaimDecision | None:
    claim = cached.claim
    if claim.allocation is None or not claim.allocation.node or claim.deleting:
        return None
    return decided(claim) if claim.void < claim.decision else None


class Halfway(RecordedRule[tuple[Execution, ...]], frozen=True, kw_only=True, tag="halfway"):
    """Orders that finish pods which have all their devices and lack the last step.

    Asked for those that have been so for long enough; see ``StartedHalfway``.
    """

    pods: tuple[str, ...]

    def answer(self, cache: ObjectCache) -> tuple[Execution, ...]:
        found = (adopted(cache, cache.pods[uid]) for uid in self.pods if uid in cache.pods)
        return tuple(execution for execution in found if execution is not None)


class HeldTogether(
    RecordedRule[tuple[Execution, ...]], frozen=True, kw_only=True, tag="held-together"
):
    """Orders that the allocated claims of these pods amount to, to be taken back with their
    group."""

    pods: tuple[str, ...]

    def answer(self, cache: ObjectCache) -> tuple[Execution, ...]:
        found = (held(cache, cache.pods[uid]) for uid in self.pods if uid in cache.pods)
        return tuple(execution for execution in found if execution is not None)


class StartedHalfway(RecordedRule[Due], frozen=True, kw_only=True, tag="started-halfway"):
    """UIDs of the pods that were left halfway."""

    after_s: float
    now_s: float
    since_s: dict[str, float]

    def answer(self, cache: ObjectCache) -> Due:
        halfway = cache.select(is_halfway).values
        return due(cache.in_order(halfway), self.since_s, now_s=self.now_s, after_s=self.after_s)

    def polled(self) -> str:
        return "halfway"
