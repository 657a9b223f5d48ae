"""What may be rolled back, and the void annotation that the pod gets before that. Pure.

A void claim can't be committed. But a binding names no claims, so only the pod can prevent it:
before an allocation is cleared, an annotation of the pod names the void attempts (ADR 0022), as
``<claim UID>.<attempt>``, one per claim.
"""

from dray.api.names import OWNER_DRAY
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.cache.groups import group_of_claim
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.execution.decisions.next_step import same_allocation, voids_of


def may_roll_back(
    cache: ObjectCache, claim_uid: str, attempt: int, *, pod_uid: str, binder: str
) -> bool:
    """Whether the writes of an attempt on a claim may be rolled back: no other pod uses it."""
    cached = cache.claims.get(claim_uid)
    if cached is None or cached.claim.decision > attempt:
        return False
    claim = cached.claim
    if not claim.reserved_for:
        return True
    # A reservation of dray's own came with the allocation and counts once the pod is bound; any
    # other means that somebody is about to use the allocation.
    cached_pod = cache.pods.get(pod_uid)
    pods, own = [cached_pod], claim.reserved_for == (pod_uid,)
    pod = None if cached_pod is None else cached_pod.pod
    if pod is not None and pod.member is not None and not own:
        group = group_of_claim(cache, pod, claim.name)
        own = group is not None and claim.reserved_for == (group.uid,)
        pods += cache.members_of(pod.member.group)
    is_bound = any(one is not None and bool(one.node) for one in pods)
    return own and binder == OWNER_DRAY and not is_bound


def is_held(cache: ObjectCache, wanted: ClaimDecision) -> bool:
    """Whether the claim holds what was decided for it."""
    cached = cache.claims.get(wanted.uid)
    held = None if cached is None else cached.claim.allocation
    return held is not None and same_allocation(held, wanted.allocation)


def pod_void_annotation(cache: ObjectCache, decision: PodDecision) -> str:
    """The pod's void annotation before anything of the decision is cleared; empty if it is already
    right, or dray does not bind the pod."""
    cached = cache.pods.get(decision.pod_uid)
    if decision.binder != OWNER_DRAY or cached is None or cached.pod is None or cached.node:
        return ""
    present = voids_of(cached)
    wanted = dict(present)
    for claim in decision.claims:
        if is_held(cache, claim) and may_roll_back(
            cache, claim.uid, claim.attempt, pod_uid=cached.uid, binder=decision.binder
        ):
            wanted[claim.uid] = max(claim.attempt, wanted.get(claim.uid, 0))
    if wanted == present:
        return ""
    return ",".join(f"{uid}.{attempt}" for uid, attempt in sorted(wanted.items()))


class RollbackCheck(RecordedRule[bool], frozen=True, kw_only=True, tag="may-take-back"):
    """Whether the writes of a decision on a claim may be rolled back: no other pod uses it."""

    claim_uid: str
    attempt: int
    pod_uid: str
    binder: str

    def answer(self, cache: ObjectCache) -> bool:
        return may_roll_back(
            cache, self.claim_uid, self.attempt, pod_uid=self.pod_uid, binder=self.binder
        )


class PodVoidAnnotation(RecordedRule[str], frozen=True, kw_only=True, tag="untold"):
    """The pod's void annotation before anything of a decision is cleared; empty: already right."""

    decision: PodDecision

    def answer(self, cache: ObjectCache) -> str:
        return pod_void_annotation(cache, self.decision)


class VoidCheck(RecordedRule[bool], frozen=True, kw_only=True, tag="may-void"):
    """Whether a claim may be voided as an allocator requests: it is not allocated."""

    claim_uid: str
    attempt: int

    def answer(self, cache: ObjectCache) -> bool:
        cached = cache.claims.get(self.claim_uid)
        return cached is not None and cached.claim.allocation is None
