"""Writes what observation leads to: pools' status and nodes' dedicated taints."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from dray.api.names import DRIVER, OWNER_DRAY, POOL_FINALIZER
from dray.kube.ports import NODES, POLICIES, POOLS, Kube, Object, Resource
from dray.messages.facts import NodeObserved
from dray.runtime.clock import Clock
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.changes import ChangeFeed, Unread, enter, leave
from dray_claim_controller.cache.stored_pool_status import remembered_log, stored_status
from dray_claim_controller.execution.decisions.executions import OpenExecutions
from dray_claim_controller.facts.handover import (
    changes_owner,
    displayed_pool,
    may_have_changed_hands,
    was_kube_schedulers,
)
from dray_claim_controller.facts.membership import assigned_pool
from dray_claim_controller.facts.pool_capacity import waiting_in
from dray_claim_controller.informers import Informers
from dray_claim_controller.pools.decisions.rules import PoolStatus, Taints
from dray_claim_controller.pools.decisions.status import (
    MOVED_FAR,
    NODES_IN_OTHER_POOLS,
    nodes_in_other_pools,
)
from dray_claim_controller.pools.decisions.usage import (
    PolicyFinalizer,
    PoolRelease,
    has_finalizer,
    is_deleting,
    reserved_claims,
)
from dray_claim_controller.pools.leases import ServingReplicas
from dray_claim_controller.publication.publisher import Publisher
from dray_claim_controller.work_queue import FairWorkQueue

_AT_ONCE: Final = 500
"""Nodes and pools that are looked at in one step."""
WarnPool = Callable[[Object, str, str], None]
"""Reports (pool, reason, message) as a warning event."""


class PoolReconciler:
    """Looks every ``every_s`` seconds at the pools and nodes that changed. A node or pool that
    can't be written is tried again, later each time; it delays no other."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        publisher: Publisher,
        clock: Clock,
        *,
        executions: Callable[[], Mapping[str, OpenExecutions]],
        warn: WarnPool,
        every_s: float,
        allocates: bool = True,
        serving: ServingReplicas | None = None,
        is_silent: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """``serving``: None: it is not known who serves pools. ``is_silent``: whether a node's
        agent has not reported for a while."""
        self._kube = kube
        self._informers = informers
        self._publisher = publisher
        self._clock = clock
        self._executions = executions
        self._warn = warn
        self._every_s = every_s
        self._settled: dict[str, tuple[Any, str]] = {}
        """Nodes whose taints were found right: the taints, and the node's pool."""
        self._allocates = allocates
        """Whether the cluster's kube-scheduler allocates devices."""
        self._members: dict[str, str] = {}
        """Pool by node, as published."""
        self._nodes_of: dict[str, dict[str, None]] = {}
        """Nodes by pool."""
        self._moving: dict[str, bool] = {}
        """Nodes whose devices change their owner, and whether they were kube-scheduler's."""
        self._changed: tuple[Unread[str], Unread[str], Unread[str]] | None = None
        """Changed nodes, changed pools, and pools in which the waiting pods changed; None before
        the first look."""
        self._dirty: dict[str, None] = {}
        """Pools whose status is written if it changed."""
        self._positions: dict[str, int] = {}
        """The sequences of logs that the pools' stored status names."""
        self._serving = serving
        self._is_silent = is_silent
        self._silent: dict[str, None] = {}
        """Nodes whose agents are silent."""
        self._queue = FairWorkQueue(
            clock, self._write, name="pools", group_of=lambda key: key.identity, first_s=every_s
        )

    async def run(self) -> None:
        """Keep until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue.run(), name="write-pools")
                group.create_task(self._reconcile_forever(), name="look-at-pools")
                if self._serving is not None:
                    group.create_task(self._follow(self._serving), name="look-at-leases")
        finally:
            for feed, unread in zip(self._feeds(), self._changed or (), strict=False):
                feed.unsubscribe(unread)

    async def _reconcile_forever(self) -> None:
        while True:
            for _ in self._look():
                await asyncio.sleep(0)
            await self._clock.sleep(self._every_s)

    async def _follow(self, serving: ServingReplicas) -> None:
        while True:
            pools = self._informers.cache.pool_selectors.pools().values()
            await serving.look([pool.name for pool in pools if pool.owner == OWNER_DRAY])
            self._dirty |= dict.fromkeys(serving.take_changed())
            self._note_silent()
            await serving.pause()

    def _note_silent(self) -> None:
        cache = self._informers.cache
        silent = {
            node: None
            for node in self._members
            if self._is_silent(node) and cache.devices.slices_of(DRIVER, node)
        }
        for node in silent.keys() ^ self._silent.keys():
            if (pool := self._members.get(node)) is not None:
                self._dirty[pool] = None
        self._silent = silent

    @property
    def members(self) -> Mapping[str, Iterable[str]]:
        """Nodes by pool, as published."""
        return self._nodes_of

    @property
    def backlog(self) -> int:
        """Nodes and pools that are still to be written."""
        return len(self._queue)

    def scan(self) -> None:
        """Queue pools and nodes that may have to be written."""
        for _ in self._look():
            pass

    def _look(self) -> Iterator[None]:
        """Look at what changed, in steps. Pools are queued last, when their nodes are known."""
        nodes, pools, waited_in = self._changed or self._subscribe()
        # Bring the numbers of waiting pods up to date before they are read.
        yield from self._informers.cache.prepare(waiting_in)
        while some := nodes.take(_AT_ONCE):
            for name in some:
                self._look_at_node(name)
            yield
        for name in pools.take():
            self._dirty[name] = None
            for node in self._nodes_of.get(name, ()):
                self._add_unsettled(node)
        self._dirty |= dict.fromkeys((*waited_in.take(), *self._logs_that_moved()))
        self._add_terminating()
        dirty, self._dirty = self._dirty, {}
        for number, name in enumerate(dirty, start=1):
            self._queue.add(FactKey("pool", name))
            if number % _AT_ONCE == 0:
                yield

    def _add_terminating(self) -> None:
        """Pools that are being deleted are looked at until nothing uses them."""
        cache = self._informers.cache
        pools = cache.pool_selectors.pools()
        self._dirty |= dict.fromkeys(name for name, pool in pools.items() if pool.deleting)
        used = {pool.template for pool in pools.values()}
        for name, obj in cache.plain[POLICIES.plural].items():
            if (name in used) != has_finalizer(obj) or is_deleting(obj):
                self._queue.add(FactKey("policy", name))

    def _feeds(self) -> tuple[ChangeFeed[str], ...]:
        cache = self._informers.cache
        return cache.changed_nodes, cache.changed_pools, cache.changes_of(waiting_in)

    def _subscribe(self) -> tuple[Unread[str], Unread[str], Unread[str]]:
        cache = self._informers.cache
        nodes, pools, waited_in = self._changed = (Unread(), Unread(), Unread())
        nodes.add(cache.plain[NODES.plural])
        pools.add(cache.plain[POOLS.plural])
        for feed, unread in zip(self._feeds(), self._changed, strict=True):
            feed.subscribe(unread)
        return nodes, pools, waited_in

    def _logs_that_moved(self) -> Iterator[str]:
        for name, executions in self._executions().items():
            if executions.sequence - self._positions.get(name, 0) >= MOVED_FAR:
                yield name

    async def _write(self, key: FactKey) -> None:
        if key.kind == "node":
            await self._taint(key.identity)
        elif key.kind == "policy":
            await self._finalize_policy(key.identity)
        else:
            await self._write_status(key.identity)
            await self._release(key.identity)

    async def _release(self, name: str) -> None:
        """Remove the finalizer of a pool that is being deleted, once nothing uses the pool."""
        cache, executions = self._informers.cache, self._executions().get(name)
        obj = cache.plain[POOLS.plural].get(name)
        if obj is None or not is_deleting(obj):
            return
        reserved = reserved_claims(cache, executions, self._publisher.now_unix_s())
        if self._informers.evaluate(PoolRelease(pool=name, reserved=reserved)):
            await self._write_finalizers(POOLS, obj, keeps=False)

    async def _finalize_policy(self, name: str) -> None:
        keeps = self._informers.evaluate(PolicyFinalizer(policy=name))
        obj = self._informers.cache.plain[POLICIES.plural].get(name)
        if keeps is not None and obj is not None:
            await self._write_finalizers(POLICIES, obj, keeps=keeps)

    async def _write_finalizers(self, resource: Resource, obj: Object, *, keeps: bool) -> None:
        metadata = obj["metadata"]
        others = [one for one in metadata.get("finalizers") or () if one != POOL_FINALIZER]
        wanted = [*others, POOL_FINALIZER] if keeps else others
        fence = {"resourceVersion": metadata["resourceVersion"]}
        patch = {"metadata": {**fence, "finalizers": wanted or None}}
        answer = await self._kube.patch(resource, metadata["name"], patch)
        if not (is_deleting(obj) and not wanted):
            self._informers.apply_response(resource, answer)

    def _look_at_node(self, name: str) -> None:
        """Find the pool of a node, as published, and whether its devices change hands."""
        cache = self._informers.cache
        fact = self._publisher.last(FactKey("node", name))
        known = self._members.pop(name, None)
        if known is not None:
            leave(self._nodes_of, known, name)
        self._moving.pop(name, None)
        self._dirty |= dict.fromkeys((known, *cache.pool_selectors.of_node(name)) if known else ())
        if name not in cache.plain[NODES.plural] or not isinstance(fact, NodeObserved):
            self._settled.pop(name, None)
            return
        wanted = assigned_pool(cache, name)
        pool = self._members[name] = displayed_pool(fact, wanted)
        enter(self._nodes_of, pool, name)
        if wanted is not None and changes_owner(fact, wanted):
            self._moving[name] = was_kube_schedulers(fact)
        self._dirty |= dict.fromkeys((pool, *cache.pool_selectors.of_node(name)))
        if self._settled.get(name) != (_taints(cache.plain[NODES.plural][name]), pool):
            self._queue.add(FactKey("node", name))

    def _add_unsettled(self, node: str) -> None:
        self._settled.pop(node, None)
        self._queue.add(FactKey("node", node))

    async def _taint(self, name: str) -> None:
        obj, pool = self._informers.cache.plain[NODES.plural].get(name), self._members.get(name)
        if obj is None or pool is None:
            return
        taints = self._informers.evaluate(Taints(node=name, pool=pool))
        if taints is None:
            self._settled[name] = (_taints(obj), pool)
            return
        known = {(entry["key"], entry["effect"]): entry for entry in _taints(obj) or ()}
        wanted = [
            known.get((taint.key, taint.effect), {})
            | {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in taints
        ]
        fence = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        patch = {"metadata": fence, "spec": {"taints": wanted or None}}
        self._informers.apply_response(NODES, await self._kube.patch(NODES, name, patch))

    async def _write_status(self, name: str) -> None:
        cache = self._informers.cache
        obj = cache.plain[POOLS.plural].get(name)
        if obj is None or name not in cache.pool_selectors.pools():
            # It can't be read, or was deleted while it waited for its turn.
            self._positions.pop(name, None)
            return
        executions = self._executions().get(name)
        self._positions[name] = remembered_log(obj).last_sequence
        if may_have_changed_hands(obj):
            # The facts of its nodes may follow later. If they are lost before that, only the status
            # says who had the devices.
            for node in [*self._nodes_of.get(name, ())]:
                self._look_at_node(node)
        nodes = sorted(self._nodes_of.get(name, ()))
        status = self._informers.evaluate(
            PoolStatus(
                pool=name,
                nodes=tuple(nodes),
                moving=tuple(node for node in nodes if node in self._moving),
                is_recalled=any(self._moving.get(node) for node in nodes),
                served_by=None if self._serving is None else self._serving.served_by(name),
                silent=tuple(node for node in nodes if node in self._silent),
                allocates=self._allocates,
                epoch=0 if executions is None else executions.epoch,
                sequence=0 if executions is None else executions.sequence,
                now_unix_s=self._clock.now_unix_s(),
            )
        )
        if status is None:
            return
        fence = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        patch = {"metadata": fence, "status": status}
        answer = await self._kube.patch(POOLS, name, patch, subresource="status")
        self._informers.apply_response(POOLS, answer)
        elsewhere = nodes_in_other_pools(status)
        if elsewhere and elsewhere != nodes_in_other_pools(stored_status(obj)):
            self._warn(obj, NODES_IN_OTHER_POOLS, elsewhere)


def _taints(node: Object) -> Any:
    """The taints as they are written; None also if the node can't be read."""
    spec = node.get("spec")
    return spec.get("taints") if isinstance(spec, dict) else None
