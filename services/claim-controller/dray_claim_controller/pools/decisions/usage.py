"""Who uses a GPUPool, and whether it keeps its finalizer. Pure."""

from collections.abc import Iterable, Iterator

from dray.api.names import DRIVER, POOL_FINALIZER
from dray.kube.ports import POLICIES, POOLS, Object
from dray_claim_controller.cache.cached_objects import CachedResourceClaim
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.execution.decisions.executions import OpenExecutions
from dray_claim_controller.facts.membership import assigned_name

HELD_FOR_S = 60.0
"""A decision that is not committed after this time no longer keeps a pool from being deleted: its
claim can't be written."""


def has_finalizer(obj: Object) -> bool:
    """Whether a pool or policy has dray's finalizer."""
    return POOL_FINALIZER in (obj["metadata"].get("finalizers") or ())


def is_deleting(obj: Object) -> bool:
    """Whether the object is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def allocated_claims(cache: ObjectCache, pool: str) -> Iterator[CachedResourceClaim]:
    """Claims that hold devices of a pool: derived for it, or on its nodes."""
    on_nodes = {
        uid
        for node in cache.pool_selectors.selected_by(pool)
        if assigned_name(cache, node) == pool
        for uid in cache.devices.holders_on(node)
    }
    for uid, cached in cache.claims.items():
        allocation = cached.claim.allocation
        if allocation is None or not any(one.id.driver == DRIVER for one in allocation.devices):
            continue
        if cached.claim.pool == pool or (not cached.claim.pool and uid in on_nodes):
            yield cached


def pods_of(cache: ObjectCache, claims: Iterable[CachedResourceClaim]) -> int:
    """How many pods use these claims."""
    return len({pod.uid for cached in claims for pod in cache.users.of(cached.claim)})


def reserved_claims(
    cache: ObjectCache, executions: OpenExecutions | None, now_unix_s: float
) -> tuple[str, ...]:
    """UIDs of claims that a decision of the pool may still allocate."""
    return tuple(
        claim.uid
        for execution in (executions.open.values() if executions is not None else ())
        if now_unix_s - (execution.decided_unix_s or 0.0) < HELD_FOR_S
        for claim in execution.decision.claims
        if (cached := cache.claims.get(claim.uid)) is not None
        and cached.claim.allocation is None
        and cached.claim.void < claim.attempt
    )


class PoolRelease(RecordedRule[bool], frozen=True, kw_only=True, tag="pool-release"):
    """Whether a pool that is being deleted loses its finalizer."""

    pool: str
    reserved: tuple[str, ...]
    """Claims that a decision may still allocate."""

    def answer(self, cache: ObjectCache) -> bool:
        obj = cache.plain[POOLS.plural].get(self.pool)
        if obj is None or not (is_deleting(obj) and has_finalizer(obj)) or self.reserved:
            return False
        return next(allocated_claims(cache, self.pool), None) is None

    def polled(self) -> str:
        return f"pool-release/{self.pool}"


class PolicyFinalizer(RecordedRule[bool | None], frozen=True, kw_only=True, tag="policy-finalizer"):
    """Whether a policy is to get (True) or lose (False) its finalizer; None: it stays as it is."""

    policy: str

    def answer(self, cache: ObjectCache) -> bool | None:
        obj = cache.plain[POLICIES.plural].get(self.policy)
        if obj is None:
            return None
        pools = cache.pool_selectors.pools().values()
        is_used = any(pool.template == self.policy for pool in pools)
        if has_finalizer(obj):
            return False if is_deleting(obj) and not is_used else None
        return True if is_used and not is_deleting(obj) else None

    def polled(self) -> str:
        return f"policy-finalizer/{self.policy}"
