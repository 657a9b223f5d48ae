"""Writes what observation leads to: pools' status and nodes' dedicated taints."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from dray.kube.ports import NODES, POOLS, Kube, Object
from dray.messages.facts import NodeObserved
from dray.runtime.clock import Clock
from dray_claim_controller.deciding.observing import PoolStatus, Taints
from dray_claim_controller.domains.stored_status import stored_status
from dray_claim_controller.execute.orders import Orders
from dray_claim_controller.observe.assignment import assigned_pool, pools_of
from dray_claim_controller.observe.capacity import NODES_IN_OTHER_POOLS, nodes_in_other_pools
from dray_claim_controller.observe.owners import home, is_on_its_way
from dray_claim_controller.observe.publisher import Publisher
from dray_claim_controller.observe.seen import Key
from dray_claim_controller.observe.watching import Watching
from dray_claim_controller.work_queue import WorkQueue

Tell = Callable[[Object, str, str], None]
"""Reports (pool, reason, message) as a warning event."""


class PoolKeeper:
    """Looks at all pools and nodes every ``every_s`` seconds. A node or pool that can't be written
    is tried again, later each time; it delays no other."""

    def __init__(
        self,
        kube: Kube,
        watching: Watching,
        publisher: Publisher,
        clock: Clock,
        *,
        orders: Callable[[], Mapping[str, Orders]],
        tell: Tell,
        every_s: float,
        allocates: bool = True,
    ) -> None:
        self._kube = kube
        self._watching = watching
        self._publisher = publisher
        self._clock = clock
        self._orders = orders
        self._tell = tell
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
        """Nodes whose devices change hands."""
        self._queue = WorkQueue(
            clock, self._write, name="pools", group_of=lambda key: key.identity, first_s=every_s
        )

    async def run(self) -> None:
        """Keep until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="write-pools")
            group.create_task(self._look_for_ever(), name="look-at-pools")

    async def _look_for_ever(self) -> None:
        while True:
            self.look()
            await self._clock.sleep(self._every_s)

    @property
    def backlog(self) -> int:
        """Nodes and pools that are still to be written."""
        return len(self._queue)

    def look(self) -> None:
        """Find what may differ; it is written where it does."""
        self._members, self._moving = self._find_members()
        for name in self._unsettled():
            self._queue.add(Key("node", name))
        for name in pools_of(self._watching.picture):
            self._queue.add(Key("pool", name))

    async def _write(self, key: Key) -> None:
        if key.kind == "node":
            await self._taint(key.identity)
        else:
            await self._write_status(key.identity)

    def _find_members(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Pool by node, as published, and the nodes whose devices change hands."""
        found, moving = {}, []
        picture = self._watching.picture
        for name in picture.plain[NODES.plural]:
            fact = self._publisher.last(Key("node", name))
            if not isinstance(fact, NodeObserved):
                continue
            wanted = assigned_pool(picture, name)
            found[name] = home(fact, wanted)
            if wanted is not None and is_on_its_way(fact, wanted):
                moving.append(name)
        return found, tuple(moving)

    def _unsettled(self) -> list[str]:
        """Nodes whose taints may be wrong."""
        picture, members = self._watching.picture, self._members
        specs = [obj.get("spec") for obj in picture.plain[POOLS.plural].values()]
        if specs != self._specs:
            self._specs = specs
            self._settled.clear()
        for name in [name for name in self._settled if name not in members]:
            del self._settled[name]
        nodes = picture.plain[NODES.plural]
        return [
            name
            for name, pool in members.items()
            if name in nodes and not self._is_settled(name, nodes[name], pool)
        ]

    async def _taint(self, name: str) -> None:
        obj, pool = self._watching.picture.plain[NODES.plural].get(name), self._members.get(name)
        if obj is None or pool is None:
            return
        taints = self._watching.ask(Taints(node=name, pool=pool))
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
        self._watching.answered(NODES, await self._kube.patch(NODES, name, patch))

    def _is_settled(self, name: str, obj: Object, pool: str) -> bool:
        known = self._settled.get(name)
        return known is not None and known[0] is obj and known[1] == pool

    async def _write_status(self, name: str) -> None:
        obj = self._watching.picture.plain[POOLS.plural].get(name)
        if obj is None:
            # Deleted while it waited for its turn.
            return
        members, orders = self._members, self._orders().get(name)
        status = self._watching.ask(
            PoolStatus(
                pool=name,
                nodes=tuple(node for node, pool in members.items() if pool == name),
                moving=tuple(node for node in self._moving if members[node] == name),
                allocates=self._allocates,
                epoch=0 if orders is None else orders.epoch,
                sequence=0 if orders is None else orders.sequence,
                now_unix_s=self._clock.now_unix_s(),
            )
        )
        if status is None:
            return
        fence = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        patch = {"metadata": fence, "status": status}
        answer = await self._kube.patch(POOLS, name, patch, subresource="status")
        self._watching.answered(POOLS, answer)
        elsewhere = nodes_in_other_pools(status)
        if elsewhere and elsewhere != nodes_in_other_pools(stored_status(obj)):
            self._tell(obj, NODES_IN_OTHER_POOLS, elsewhere)
