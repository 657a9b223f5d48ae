"""``GPUPool.status``: capacity, use and conditions. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dray.api.names import OWNER_DRAY, OWNER_KUBE_SCHEDULER, OWNER_TAINT
from dray.api.pods import Pool
from dray.kube.convert import time_to
from dray.kube.ports import POLICIES, POOLS, Object
from dray.reasons import name_list
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.stored_pool_status import stored_status
from dray_claim_controller.facts.handover import former_owner, may_have_changed_hands
from dray_claim_controller.facts.membership import assigned_name, contested_nodes
from dray_claim_controller.facts.pool_capacity import pool_totals, waiting_in
from dray_claim_controller.pools.decisions.usage import allocated_claims, pods_of

SILENT_S: Final = 30.0
"""After this time without a report a node-agent counts as silent; it reports every 10 s."""
MOVED_FAR: Final = 100
"""How many log records the stored position may be behind before it alone is worth a write."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far the pool's decision log was read."""

    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """Which owner allocates the pool's devices."""

    moving: tuple[str, ...] = ()
    """Its nodes whose devices the pool's owner does not have yet."""
    allocates: bool = True
    """Whether the cluster's kube-scheduler allocates devices."""
    is_recalled: bool = False
    """Whether kube-scheduler had the devices of one of them."""


@dataclass(frozen=True, slots=True)
class PoolServices:
    """Which services of the pool are available."""

    served_by: str | None = None
    """The allocator that serves it; empty: none; None: not known yet."""
    silent: tuple[str, ...] = ()
    """Nodes whose node-agents have not reported for a while."""


def pool_status(
    cache: ObjectCache,
    pool: Pool,
    nodes: Iterable[str],
    log: LogPosition | None,
    now_unix_s: float,
    hands: OwnerChange = OwnerChange(),
    services: PoolServices = PoolServices(),
) -> dict[str, Any]:
    """The pool's status; ``nodes`` are those published as its own.

    Only the sequence of the decision log is written, and only if the status names the same epoch:
    epochs are written when they are opened.
    """
    obj = cache.plain[POOLS.plural][pool.name]
    before = stored_status(obj)
    members = sorted(nodes)
    totals = pool_totals(cache, members)
    status: dict[str, Any] = {
        "nodes": len(members),
        "gpus": totals.gpus,
        "unhealthy": totals.unhealthy,
        "tflops": totals.tflops,
        "vram": totals.vram,
        "waitingPods": len(cache.select(waiting_in).with_value(pool.name)),
        "observedGeneration": int(obj["metadata"].get("generation") or 0),
        "conditions": _dated(
            _conditions(cache, pool, members, hands, services),
            before.get("conditions") or (),
            now_unix_s,
        ),
    }
    if totals.models or before.get("models"):
        status["models"] = totals.models
    if pool.owner == OWNER_DRAY and services.served_by:
        status["servedBy"] = services.served_by
    elif before.get("servedBy") and (services.served_by == "" or pool.owner != OWNER_DRAY):
        status["servedBy"] = None
    owner = _owner(obj, pool, hands)
    if owner != OWNER_DRAY or before.get("owner"):
        status["owner"] = owner
    remembered = before.get("decisionLog") or {}
    if log is not None and remembered.get("epoch") == log.epoch:
        status["decisionLog"] = {"epoch": log.epoch, "lastSequence": log.sequence}
    return status


def _owner(obj: Object, pool: Pool, hands: OwnerChange) -> str:
    """The former owner of the devices until all nodes have the pool's owner; then the pool's owner.
    Nodes that came from another pool while in quarantine don't count."""
    if hands.is_recalled and may_have_changed_hands(obj):
        return OWNER_KUBE_SCHEDULER
    return former_owner(obj) if hands.moving else pool.owner


def is_news(status: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether to write a status. If only the log's sequence differs, not before it has moved by
    ``MOVED_FAR``: every write is sent to all watchers of pools."""
    new, known = dict(status), dict(before)
    if "servedBy" not in new:
        known.pop("servedBy", None)
    log, known_log = new.pop("decisionLog", None), known.pop("decisionLog", None) or {}
    if new != known:
        return True
    moved = (log or {}).get("lastSequence", 0) - int(known_log.get("lastSequence") or 0)
    return bool(moved >= MOVED_FAR)


@dataclass(frozen=True, slots=True)
class _SelectorOverlap:
    """Nodes that a pool and others select."""

    lost: tuple[str, ...]
    """Contested nodes that other pools have, as ``node (pool)``."""
    kept: tuple[str, ...]
    """Contested nodes that the pool has, as ``node (other pools)``."""

    @property
    def reason(self) -> str:
        return (
            NODES_IN_OTHER_POOLS if self.lost else "SelectorsOverlap" if self.kept else "NoOverlap"
        )

    @property
    def message(self) -> str:
        parts = []
        if self.lost:
            parts.append(
                f"it selects nodes that other pools have: {name_list(self.lost)}; "
                "change a spec.nodeSelector or the nodes' labels"
            )
        if self.kept:
            parts.append(
                "nodes of this pool are also selected by others, which don't get them: "
                f"{name_list(self.kept)}"
            )
        return "; ".join(parts)


def _conditions(
    cache: ObjectCache, pool: Pool, nodes: list[str], hands: OwnerChange, services: PoolServices
) -> list[dict[str, str]]:
    overlap = _overlap(cache, pool.name)
    template_missing = bool(pool.template) and pool.template not in cache.plain[POLICIES.plural]
    conditions = [
        _condition(
            "TemplateMissing",
            template_missing,
            "NotFound" if template_missing else "Found",
            f"SchedulingConfigTemplate {pool.template!r} does not exist"
            if template_missing
            else "",
        ),
        _condition(
            _NODE_IN_TWO_POOLS,
            bool(overlap.lost or overlap.kept),
            overlap.reason,
            overlap.message,
        ),
        _condition(
            "NodeAgentsSilent",
            bool(services.silent),
            "NoReports" if services.silent else "Reporting",
            f"no report for {SILENT_S:g} s from the node-agents of {name_list(services.silent)}: "
            "new pods there are not prepared, and what the nodes publish may be old"
            if services.silent
            else "",
        ),
    ]
    is_unserved = pool.owner == OWNER_DRAY and services.served_by == ""
    if pool.owner == OWNER_DRAY and services.served_by is not None:
        why = (_NOT_SERVED, _NOT_SERVED_WHY) if is_unserved else ("LeaseHeld", "")
        conditions.append(_condition("Served", not is_unserved, *why))
    if template_missing:
        readiness = (False, "TemplateMissing", conditions[0]["message"])
    else:
        readiness = _readiness(cache, pool, nodes, hands, overlap, is_unserved=is_unserved)
    return [_condition("Ready", *readiness), *conditions]


def _readiness(
    cache: ObjectCache,
    pool: Pool,
    nodes: list[str],
    hands: OwnerChange,
    overlap: _SelectorOverlap,
    *,
    is_unserved: bool,
) -> tuple[bool, str, str]:
    """Whether pods can get GPUs of a pool that has its template, the reason and the message."""
    if pool.owner == OWNER_KUBE_SCHEDULER and not hands.allocates:
        return False, "NoAllocatingScheduler", _NOBODY_ALLOCATES
    if pool.deleting:
        pods = pods_of(cache, allocated_claims(cache, pool.name))
        held = "1 pod holds" if pods == 1 else f"{pods} pods hold"
        return (
            False,
            "Deleting",
            f"it is being deleted: {held} its GPUs; it goes once they have ended",
        )
    if not nodes and overlap.lost:
        return False, NODES_IN_OTHER_POOLS, f"no node is in this pool: {overlap.message}"
    if not nodes:
        return False, "NoNodes", "no node is in this pool"
    if _owner(cache.plain[POOLS.plural][pool.name], pool, hands) != pool.owner:
        return False, "OwnerChanging", _in_between(pool, hands)
    if is_unserved:
        return False, _NOT_SERVED, _NOT_SERVED_WHY
    if overlap.lost:
        return True, NODES_IN_OTHER_POOLS, overlap.message
    if pool.owner == OWNER_KUBE_SCHEDULER:
        return True, "FirstFit", _FIRST_FIT
    return True, "Ready", overlap.message


_NOT_SERVED = "NotServed"
_NOT_SERVED_WHY = (
    "no allocator holds the pool's lease, so nothing is decided: check that an allocator runs and "
    "reaches NATS"
)
_NODE_IN_TWO_POOLS = "NodeInTwoPools"
NODES_IN_OTHER_POOLS = "NodesInOtherPools"
"""Reason of a pool that selects nodes and does not get them."""


def nodes_in_other_pools(status: Mapping[str, Any]) -> str:
    """What a status says of nodes that the pool selects and another one has; empty: nothing."""
    for condition in status.get("conditions") or ():
        if (condition["type"], condition["reason"]) == (_NODE_IN_TWO_POOLS, NODES_IN_OTHER_POOLS):
            return str(condition["message"])
    return ""


def _overlap(cache: ObjectCache, pool: str) -> _SelectorOverlap:
    lost, kept = [], []
    for node, names in sorted(contested_nodes(cache, pool)):
        owner = assigned_name(cache, node)
        if owner != pool:
            lost.append(f"{node} ({owner})")
        else:
            others = [name for name in names if name != pool]
            kept.append(f"{node} ({', '.join(others)})")
    return _SelectorOverlap(tuple(lost), tuple(kept))


_FIRST_FIT = (
    "kube-scheduler allocates the devices of this pool: the first that fit, whatever the placement "
    "mode of its SchedulingConfigTemplate says"
)
_NOBODY_ALLOCATES = (
    "this pool is owned by kube-scheduler (spec.owner), but no scheduler here allocates devices "
    "(DRAY_OWNER__ALLOCATING_SCHEDULER is false), so its pods are denied: set spec.owner: dray, or "
    "use a cluster whose kube-scheduler does"
)


def _in_between(pool: Pool, hands: OwnerChange) -> str:
    some = ", ".join(hands.moving[:8]) + (", …" if len(hands.moving) > 8 else "")
    where = f"{len(hands.moving)} node{'' if len(hands.moving) == 1 else 's'} ({some})"
    if pool.owner == OWNER_KUBE_SCHEDULER:
        return f"dray decides nothing new; on {where} its decisions are being carried out or voided"
    return (
        f"kube-scheduler is kept away by the taint {OWNER_TAINT}; on {where} dray waits until "
        "none of kube-scheduler's allocations is in flight"
    )


def _condition(kind: str, holds: bool, reason: str, message: str) -> dict[str, str]:
    status = "True" if holds else "False"
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _dated(
    conditions: list[dict[str, str]], before: Iterable[Object], now_unix_s: float
) -> list[dict[str, str]]:
    known = {str(entry["type"]): entry for entry in before}
    dated = []
    for condition in conditions:
        old = known.get(condition["type"])
        same = old is not None and old.get("status") == condition["status"]
        since = old["lastTransitionTime"] if old is not None and same else time_to(now_unix_s)
        dated.append({**condition, "lastTransitionTime": since})
    return dated
