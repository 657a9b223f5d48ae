"""Writes what observation leads to: pools' status and nodes' dedicated taints."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from dray.kube.ports import NODES, POOLS, Kube, Object
from dray.messages.facts import NodeObserved
from dray.runtime.clock import Clock
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.informers import Informers
from dray_claim_controller.cache.stored_pool_status import stored_status
from dray_claim_controller.execution.executions import OpenExecutions
from dray_claim_controller.facts.handover import changes_owner, displayed_pool
from dray_claim_controller.facts.membership import assigned_pool
from dray_claim_controller.facts.publisher import Publisher
from dray_claim_controller.pools.decisions import PoolStatus, Taints
from dray_claim_controller.pools.status import NODES_IN_OTHER_POOLS, nodes_in_other_pools
from dray_claim_controller.work_queue import FairWorkQueue

WarnPool = Callable[[Object, str, str], None]
"""Reports (pool, reason, message) as a warning event."""


class PoolReconciler:
    """Scans all pools and nodes every ``every_s`` seconds. A node or pool that can't be written
    is tried again, later each time; it delays no other."""

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
    ) -> None:
        self._kube = kube
        self._informers = informers
        self._publisher = publisher
        self._clock = clock
        self._executions = executions
        self._warn = warn
        self._every_s = every_s
        self._settled: dict[str, tuple[Object, str]] = {}
        """Nodes whose taints were found right: as they were, and their pool."""
        self._specs: list[Any] = []
        """Of all pools, when that was found."""
        self._allocates = allocates
        """Whether the cluster's kube-scheduler allocates devices."""
        self._members: dict[str, str] = {}
        """Pool by node, as published."""
        self._moving: tuple[str, ...] = ()
        """Nodes whose devices change their owner."""
        self._queue = FairWorkQueue(
            clock, self._write, name="pools", group_of=lambda key: key.identity, first_s=every_s
        )

    async def run(self) -> None:
        """Keep until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="write-pools")
            group.create_task(self._reconcile_forever(), name="look-at-pools")

    async def _reconcile_forever(self) -> None:
        while True:
            self.scan()
            await self._clock.sleep(self._every_s)

    @property
    def backlog(self) -> int:
        """Nodes and pools that are still to be written."""
        return len(self._queue)

    def scan(self) -> None:
        """Queue pools and nodes that may have to be written."""
        self._members, self._moving = self._find_members()
        for name in self._unsettled():
            self._queue.add(FactKey("node", name))
        for name in self._informers.cache.pool_selectors.pools():
            self._queue.add(FactKey("pool", name))

    async def _write(self, key: FactKey) -> None:
        if key.kind == "node":
            await self._taint(key.identity)
        else:
            await self._write_status(key.identity)

    def _find_members(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Pool by node, as published, and the nodes whose devices change hands."""
        found, moving = {}, []
        cache = self._informers.cache
        for name in cache.plain[NODES.plural]:
            fact = self._publisher.last(FactKey("node", name))
            if not isinstance(fact, NodeObserved):
                continue
            wanted = assigned_pool(cache, name)
            found[name] = displayed_pool(fact, wanted)
            if wanted is not None and changes_owner(fact, wanted):
                moving.append(name)
        return found, tuple(moving)

    def _unsettled(self) -> list[str]:
        """Nodes whose taints may be wrong."""
        cache, members = self._informers.cache, self._members
        specs = [obj.get("spec") for obj in cache.plain[POOLS.plural].values()]
        if specs != self._specs:
            self._specs = specs
            self._settled.clear()
        for name in [name for name in self._settled if name not in members]:
            del self._settled[name]
        nodes = cache.plain[NODES.plural]
        return [
            name
            for name, pool in members.items()
            if name in nodes and not self._is_settled(name, nodes[name], pool)
        ]

    async def _taint(self, name: str) -> None:
        obj, pool = self._informers.cache.plain[NODES.plural].get(name), self._members.get(name)
        if obj is None or pool is None:
            return
        taints = self._informers.evaluate(Taints(node=name, pool=pool))
        if taints is None:
            self._settled[name] = (obj, pool)
            return
        known = {
            (entry["key"], entry["effect"]): entry
            for entry in (obj.get("spec") or {}).get("taints") or ()
        }
        wanted = [
            known.get((taint.key, taint.effect), {})
            | {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in taints
        ]
        fence = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        patch = {"metadata": fence, "spec": {"taints": wanted or None}}
        self._informers.apply_response(NODES, await self._kube.patch(NODES, name, patch))

    def _is_settled(self, name: str, obj: Object, pool: str) -> bool:
        known = self._settled.get(name)
        return known is not None and known[0] is obj and known[1] == pool

    async def _write_status(self, name: str) -> None:
        obj = self._informers.cache.plain[POOLS.plural].get(name)
        if obj is None:
            # Deleted while it waited for its turn.
            return
        members, executions = self._members, self._executions().get(name)
        status = self._informers.evaluate(
            PoolStatus(
                pool=name,
                nodes=tuple(node for node, pool in members.items() if pool == name),
                moving=tuple(node for node in self._moving if members[node] == name),
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
