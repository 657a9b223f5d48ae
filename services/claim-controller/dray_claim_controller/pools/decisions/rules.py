"""What is written on a GPUPool and on its nodes. Pure."""

from collections.abc import Iterable
from typing import Any

from dray.api.devices import Taint
from dray.api.names import DEDICATED_TAINT
from dray.api.pods import Pool
from dray.kube.convert import node_from
from dray.kube.ports import NODES, POOLS
from dray.messages.facts import NodeObserved, PoolObserved
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.cache.stored_pool_status import stored_status
from dray_claim_controller.pools.decisions.status import (
    LogPosition,
    OwnerChange,
    PoolServices,
    is_news,
    pool_status,
)


class Taints(RecordedRule[tuple[Taint, ...] | None], frozen=True, kw_only=True, tag="taints"):
    """The taints that a node of ``pool`` is to have; None if it has them."""

    node: str
    pool: str

    def answer(self, cache: ObjectCache) -> tuple[Taint, ...] | None:
        obj = cache.plain[NODES.plural].get(self.node)
        kept = (FactKey(NodeObserved.NAME, self.node), FactKey(PoolObserved.NAME, self.pool))
        if obj is None or any(map(cache.is_unreadable, kept)):
            return None
        return dedicated_taints(node_from(obj).taints, cache.pool_selectors.pools().get(self.pool))

    def polled(self) -> str:
        return f"taints/{self.node}"


class PoolStatus(RecordedRule[dict[str, Any] | None], frozen=True, kw_only=True, tag="pool-status"):
    """What to write into a pool's status; None if nothing changed."""

    pool: str
    nodes: tuple[str, ...]
    epoch: int = 0
    """The epoch of the log that was read; 0: none was."""
    sequence: int = 0
    now_unix_s: float
    moving: tuple[str, ...] = ()
    """Nodes whose devices are not yet allocated by the pool's owner."""
    allocates: bool = True
    """Whether the cluster's kube-scheduler allocates devices."""
    is_recalled: bool = False
    """Whether kube-scheduler had the devices of one of the moving nodes."""
    served_by: str | None = None
    """The allocator that serves it; empty: none; None: not known yet."""
    silent: tuple[str, ...] = ()
    """Nodes whose node-agents have not reported for a while."""

    def answer(self, cache: ObjectCache) -> dict[str, Any] | None:
        log = LogPosition(self.epoch, self.sequence) if self.epoch else None
        pool = cache.pool_selectors.pools()[self.pool]
        hands = OwnerChange(self.moving, self.allocates, self.is_recalled)
        services = PoolServices(self.served_by, self.silent)
        status = pool_status(cache, pool, self.nodes, log, self.now_unix_s, hands, services)
        before = stored_status(cache.plain[POOLS.plural][self.pool])
        return status if is_news(status, before) else None

    def polled(self) -> str:
        return f"pool-status/{self.pool}"


def dedicated_taints(taints: Iterable[Taint], pool: Pool | None) -> tuple[Taint, ...] | None:
    """The node's taints, with dray's own taints right for its pool, or None if they are right
    already."""
    before = tuple(taints)
    others = tuple(taint for taint in before if taint.key != DEDICATED_TAINT)
    own = tuple(taint for taint in before if taint.key == DEDICATED_TAINT)
    wanted = (
        (Taint(DEDICATED_TAINT, pool.name, "NoSchedule"),)
        if pool is not None and pool.dedicated
        else ()
    )
    return None if own == wanted else (*others, *wanted)
