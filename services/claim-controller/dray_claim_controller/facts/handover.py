"""Which nodes a pool selects, and how a node moves from one pool to another. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from dray.api.names import (
    DRIVER,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
    OWNER_TAINT,
)
from dray.api.pods import Node, Pool
from dray.kube.ports import POOLS, Object
from dray.messages.facts import NodeObserved
from dray_claim_controller.cache.cached_objects import CachedResourceClaim
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.stored_pool_status import remembered_log, stored_status


@dataclass(frozen=True, slots=True)
class NodeMembership:
    """The pool of a node, or the pool that it is leaving."""

    pool: str
    leaving: str = ""
    leaving_since: int = 0
    quarantined: bool = False
    """kube-scheduler had its devices, and nobody has them yet; see ``next_membership``."""
    recalled_unix_s: float | None = None


@dataclass(frozen=True, slots=True)
class QuarantineTerms:
    """What the return of devices from kube-scheduler to dray depends on."""

    now_unix_s: float = 0.0
    quarantine_s: float = 60.0
    keeps_taints: bool = True
    """Whether the API server keeps device taints."""


@dataclass(frozen=True, slots=True)
class MembershipInputs:
    """What a node's next membership depends on besides the pool that has it."""

    published: NodeObserved | None
    left: Mapping[tuple[str, str], int]
    domains: Collection[str]
    recall: QuarantineTerms
    tombstone: NodeObserved | None = None
    """The last fact of a deleted node of this name."""


def next_membership(
    cache: ObjectCache, node: str, wanted: Pool | None, by: MembershipInputs
) -> NodeMembership:
    """The pool and the owner in the node's next fact."""
    published = by.published
    if published is None and not was_kube_schedulers(by.tombstone):
        return _first_membership(cache, node, wanted)
    if published is None or was_kube_schedulers(published):
        since_unix_s = published.recalled_unix_s if published and published.quarantined else None
        return _quarantined_membership(cache, node, wanted, since_unix_s, by.recall)
    name = "" if wanted is None else wanted.name
    handed_over = _is_kube_schedulers(wanted)
    revision = published.revision
    where = next_dray_membership(
        name, published.node, revision, by.left, by.domains, handed_over=handed_over
    )
    if handed_over or not where.pool:
        return where
    return replace(where, recalled_unix_s=published.recalled_unix_s)


def former_owner(pool: Object) -> str:
    """Who allocated the pool's devices when its status was last written."""
    return stored_status(pool).get("owner") or OWNER_DRAY


def may_have_changed_hands(pool: Object) -> bool:
    """Whether the pool was changed after its status was written. Until the status is written again,
    either owner may have the pool's devices, and only the facts say which; they are lost."""
    observed = stored_status(pool).get("observedGeneration")
    return int(pool["metadata"].get("generation") or 0) > max(1, int(observed or 0))


def was_kube_schedulers(fact: NodeObserved | None) -> bool:
    """Whether kube-scheduler had the node's devices, or may still have an allocation in flight.
    This includes a node that was deleted and came back: its cards are the same devices."""
    if fact is None:
        return False
    return fact.quarantined or bool(fact.node.pool and fact.node.owner == OWNER_KUBE_SCHEDULER)


def _is_kube_schedulers(pool: Pool | None) -> bool:
    return pool is not None and pool.owner == OWNER_KUBE_SCHEDULER


def _first_membership(cache: ObjectCache, node: str, wanted: Pool | None) -> NodeMembership:
    """The membership of a node about which nothing was published. It is new, or the facts were
    lost, perhaps just before its pool changed owners: then the pool's status says who had the
    devices."""
    if wanted is None:
        return NodeMembership("")
    pool = cache.plain[POOLS.plural][wanted.name]
    former, is_unsure = former_owner(pool), may_have_changed_hands(pool)
    if _is_kube_schedulers(wanted):
        if (
            (former == OWNER_KUBE_SCHEDULER and not is_unsure)
            or not remembered_log(pool).epoch
            or not _has_devices(cache, node)
        ):
            return NodeMembership(wanted.name)
        return NodeMembership("", wanted.name, cache.node_revision.get(node, 0))
    if (former == OWNER_KUBE_SCHEDULER or is_unsure) and _has_devices(cache, node):
        return NodeMembership("", quarantined=True)
    return NodeMembership(wanted.name)


def _quarantined_membership(
    cache: ObjectCache,
    node: str,
    wanted: Pool | None,
    since_unix_s: float | None,
    recall: QuarantineTerms,
) -> NodeMembership:
    if wanted is not None and _is_kube_schedulers(wanted):
        return NodeMembership(wanted.name)
    if not _is_out_of_reach(cache, node, recall):
        return NodeMembership("", quarantined=True)
    since_unix_s = recall.now_unix_s if since_unix_s is None else since_unix_s
    if recall.now_unix_s - since_unix_s < recall.quarantine_s:
        return NodeMembership("", quarantined=True, recalled_unix_s=since_unix_s)
    if wanted is None:
        return NodeMembership("")
    return NodeMembership(wanted.name, recalled_unix_s=since_unix_s)


def _is_out_of_reach(cache: ObjectCache, node: str, recall: QuarantineTerms) -> bool:
    """Whether kube-scheduler begins no further allocation of the node's devices."""
    if recall.keeps_taints:
        return _is_tainted(cache, node)
    waiting = (cache.claims[uid] for uid in cache.claims_without_allocation())
    return not any(_may_be_allocated(cache, cached) for cached in waiting)


def _has_devices(cache: ObjectCache, node: str) -> bool:
    return bool(cache.devices.devices_of(DRIVER, node))


def _is_tainted(cache: ObjectCache, node: str) -> bool:
    """Whether every device that the node publishes carries the owner taint."""
    return all(
        any(taint.key == OWNER_TAINT for taint in device.taints)
        for device in cache.devices.devices_of(DRIVER, node)
    )


def _may_be_allocated(cache: ObjectCache, cached: CachedResourceClaim) -> bool:
    """Whether kube-scheduler may still allocate devices to the claim if no taint prevents it:
    somebody wrote the claim, or kube-scheduler may place its pod."""
    claim = cached.claim
    if claim.deleting:
        return False
    if not claim.pod_uid:
        return True
    pod = cache.pods.get(claim.pod_uid)
    if pod is None or pod.pod is None or pod.terminal:
        return False
    return pod.pod.binder == OWNER_KUBE_SCHEDULER and not pod.pod.gated


def displayed_pool(fact: NodeObserved, wanted: Pool | None) -> str:
    """The pool that people see for the node, also while its devices change owners."""
    if fact.node.pool or wanted is None:
        return fact.node.pool
    at_home = fact.quarantined or fact.node.leaving == wanted.name
    return wanted.name if at_home else ""


def changes_owner(fact: NodeObserved, pool: Pool) -> bool:
    """Whether the node's devices don't have the pool and the owner yet that ``pool`` demands."""
    return fact.node.pool != pool.name or fact.node.owner != pool.owner


def next_dray_membership(
    wanted: str,
    published: Node | None,
    published_revision: int,
    left: Mapping[tuple[str, str], int],
    domains: Collection[str],
    *,
    handed_over: bool = False,
) -> NodeMembership:
    """The membership in the next fact of a node whose devices dray or nobody allocates.

    A node goes from pool A to B through "no pool": B may only have it once A's decision log
    says that nothing of A is in flight there. ``left`` holds the highest ``node_revision``
    of A's node-left records by (domain, node); ``domains`` are those that may have decisions.
    ``handed_over``: kube-scheduler allocates for the wanted pool, also if that is A itself.
    """
    prior = "" if published is None else published.pool or published.leaving
    if published is None or not prior or (prior == wanted and not handed_over):
        return NodeMembership(wanted)
    if published.pool:
        return NodeMembership("", prior, published_revision + 1)
    has_left = left.get((prior, published.name), 0) >= published.leaving_since
    if has_left or prior not in domains:
        return NodeMembership(wanted)
    return NodeMembership("", prior, published.leaving_since)
