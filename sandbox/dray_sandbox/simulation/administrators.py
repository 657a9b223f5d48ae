"""Who changes the cluster under dray: pools, budgets, policies, nodes."""

import asyncio
import random

from dray.api.names import OWNER_DRAY, OWNER_KUBE_SCHEDULER, POOL_LABEL
from dray.bus.topology import FACTS_STREAM
from dray.kube.ports import NODES, POLICIES, POOLS, AlreadyExistsError
from dray.messages.decisions import log_stream
from dray_sandbox.simulation.cluster import (
    DEDICATED,
    SHARED,
    SPARE,
    node_object,
    pool_object,
)
from dray_sandbox.simulation.world import SimulatedWorld

BUDGET_ALARMS = ("its budget was lowered below its use", "double allocation prevented")
"""What a budget that is lowered below its use is told by, with reason."""


def budgets_may_fall(world: SimulatedWorld) -> None:
    """Nodes leave their pool: one with a raised ratio has its budget lowered, too."""
    if any("capacityConfig" in pool["spec"] for pool in world.kube.store.of(POOLS).values()):
        world.tolerated.update(BUDGET_ALARMS)


class Administrators:
    """One seed's administrators."""

    def __init__(self, world: SimulatedWorld, draw: random.Random) -> None:
        self._world = world
        self._draw = draw
        self._lowers = draw.random() < 0.3
        """Whether budgets are also lowered: then two alarms say nothing."""

    async def move_node(self) -> None:
        """A node gets another pool, or none."""
        budgets_may_fall(self._world)
        name = self._draw.choice(list(self._world.boards))
        pools = [name for _, name in self._world.kube.store.of(POOLS)]
        labels = {POOL_LABEL: self._draw.choice((SHARED, *pools, None))}
        await self._world.kube.patch(NODES, name, {"metadata": {"labels": labels}})

    async def cordon(self) -> None:
        """A node takes nothing new for a while."""
        name = self._draw.choice(list(self._world.boards))
        await self.set_unschedulable(name, True)
        await asyncio.sleep(self._draw.uniform(0.1, 2.0))
        if self._draw.random() < 0.6:
            await self.set_unschedulable(name, False)

    async def delete_node(self) -> None:
        """A node goes with its agent, and comes back, as a machine that is replaced does."""
        nodes = [name for _, name in self._world.kube.store.of(NODES)]
        if not nodes:
            return
        budgets_may_fall(self._world)
        name = self._draw.choice(nodes)
        pool = self._world.kube.store.get(NODES, name, "")["metadata"]["labels"].get(POOL_LABEL)
        away_s = self._draw.uniform(0.2, 12.0)
        self._world.kill(f"agent-{name}", "its node goes", away_s + self._draw.uniform(0.1, 1.0))
        await self._world.kube.delete(NODES, name)
        self._world.outside(self._bring_back(name, pool or SHARED, away_s))

    async def delete_pool(self) -> None:
        """A pool goes, and often comes back."""
        pools = [name for _, name in self._world.kube.store.of(POOLS)]
        if not pools:
            return
        budgets_may_fall(self._world)
        name = self._draw.choice(pools)
        await self._world.kube.delete(POOLS, name)
        if self._draw.random() < 0.7:
            self._world.outside(self._make_pool(name, self._draw.uniform(0.01, 15.0)))

    async def forget_pool(self) -> None:
        """A pool is deleted and made again while nobody leads, and what the bus knew of it is
        lost, in any order: only claims may tell that it had a life before."""
        pools = [name for _, name in self._world.kube.store.of(POOLS)]
        if not pools:
            return
        budgets_may_fall(self._world)
        away_s = self._draw.uniform(3.0, 12.0)
        sleeps = self._draw.random() < 0.5
        for leader in ("cc-1", "cc-2"):
            if sleeps:
                self._world.pause(leader, away_s)
            else:
                self._world.kill(leader, "nobody leads", away_s)
        name = self._draw.choice(pools)
        steps = [self._logs_lost, self._facts_lost, self._made_again]
        for step in self._draw.sample(steps, len(steps)):
            await asyncio.sleep(self._draw.choice((0.0, 0.0, 0.3, 2.0)))
            await step(name)

    async def create_pool(self) -> None:
        """A further pool takes a node over."""
        budgets_may_fall(self._world)
        await self._make_pool(SPARE, 0.0)
        name = self._draw.choice(list(self._world.boards))
        labels = {POOL_LABEL: SPARE}
        await self._world.kube.patch(NODES, name, {"metadata": {"labels": labels}})

    async def overlap_pools(self) -> None:
        """A pool selects every node, or its own alone again: nodes that others have stay theirs."""
        budgets_may_fall(self._world)
        await self._make_pool(SPARE, 0.0)
        selector: dict[str, str] | None = self._draw.choice(({}, {}, None))
        await self._world.kube.patch(POOLS, SPARE, {"spec": {"nodeSelector": selector}})

    async def change_ratio(self) -> None:
        """A pool sells more of its cards than they have, or less than before."""
        pools = self._world.kube.store.of(POOLS)
        if not pools:
            return
        name = self._draw.choice([name for _, name in pools])
        ratio = self._draw.choice((1, 1.5, 2, 3))
        spec = pools["", name]["spec"].get("capacityConfig") or {}
        before = float(spec.get("oversubscription", {}).get("tflopsRatio", 1))
        if ratio < before and not self._lowers:
            return
        if ratio < before:
            self._world.tolerated.update(BUDGET_ALARMS)
        oversubscription = {"tflopsRatio": str(ratio), "vramRatio": str(ratio)}
        change = {"spec": {"capacityConfig": {"oversubscription": oversubscription}}}
        await self._world.kube.patch(POOLS, name, change)

    async def change_owner(self) -> None:
        """A pool goes to kube-scheduler, or to dray."""
        pools = self._world.kube.store.of(POOLS)
        if not pools:
            return
        name = self._draw.choice([name for _, name in pools])
        before = pools["", name]["spec"].get("owner", OWNER_DRAY)
        after = OWNER_DRAY if before == OWNER_KUBE_SCHEDULER else OWNER_KUBE_SCHEDULER
        await self._world.kube.patch(POOLS, name, {"spec": {"owner": after}})
        if self._draw.random() < 0.3:  # a mistake, taken back at once or soon
            await asyncio.sleep(self._draw.uniform(0.0, 5.0))
            await self._world.kube.patch(POOLS, name, {"spec": {"owner": before}})

    async def change_policy(self) -> None:
        """Nodes are filled, or spread over."""
        mode = self._draw.choice(("CompactFirst", "LowLoadFirst"))
        await self._world.kube.patch(POLICIES, "policy", {"spec": {"placement": {"mode": mode}}})

    async def repair(self) -> None:
        """Both pools are there and dray's, none selects another's nodes, and every node may be
        used."""
        for name in (DEDICATED, SHARED):
            await self._make_pool(name, 0.0)
        for _, name in list(self._world.kube.store.of(POOLS)):
            spec = {"owner": OWNER_DRAY, "nodeSelector": None}
            await self._world.kube.patch(POOLS, name, {"spec": spec})
        for _, name in list(self._world.kube.store.of(NODES)):
            await self.set_unschedulable(name, False)

    async def set_unschedulable(self, name: str, value: bool) -> None:
        """Cordon, or uncordon."""
        await self._world.kube.patch(NODES, name, {"spec": {"unschedulable": value or None}})

    async def _logs_lost(self, pool: str) -> None:
        prefix = log_stream(pool, 0).removesuffix("0")
        for name in [name for name in self._world.bus.server.streams if name.startswith(prefix)]:
            self._world.bus.server.delete(name)

    async def _facts_lost(self, pool: str) -> None:
        self._world.bus.server.delete(FACTS_STREAM)

    async def _made_again(self, pool: str) -> None:
        await self._world.kube.delete(POOLS, pool)
        await self._make_pool(pool, self._draw.uniform(0.0, 3.0))

    async def _bring_back(self, name: str, pool: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._world.kube.create(NODES, node_object(name, pool))

    async def _make_pool(self, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            await self._world.kube.create(POOLS, pool_object(name))
        except AlreadyExistsError:
            return
