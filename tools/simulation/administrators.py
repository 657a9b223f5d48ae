"""Administrators who change pools, budgets, policies and nodes."""

import asyncio
import random
from contextlib import suppress

from dray.api.names import OWNER_DRAY, OWNER_KUBE_SCHEDULER, POOL_LABEL
from dray.bus.topology import FACTS_STREAM
from dray.kube.ports import NODES, POLICIES, POOLS, AlreadyExistsError, NotFoundError
from dray.messages.decisions import log_stream
from tools.simulation.cluster import (
    DEDICATED,
    SHARED,
    SPARE,
    node_object,
    pool_object,
)
from tools.simulation.world import SimulatedWorld

BUDGET_ALARMS = ("its budget was lowered below its use", "double allocation prevented")
"""Alarms that are correct after a budget was lowered below its use."""


def tolerate_budget_alarms(world: SimulatedWorld) -> None:
    """Tolerate BUDGET_ALARMS: a node that leaves a pool with a raised ratio loses budget."""
    if any("capacityConfig" in pool["spec"] for pool in world.kube.store.of(POOLS).values()):
        world.tolerated.update(BUDGET_ALARMS)


class Administrators:
    """One seed's administrators."""

    def __init__(self, world: SimulatedWorld, draw: random.Random) -> None:
        self._world = world
        self._draw = draw
        self._may_lower_budgets = draw.random() < 0.3
        """Whether this seed may lower budgets, which makes BUDGET_ALARMS correct."""

    async def move_node(self) -> None:
        """Move a node to another pool, or to none."""
        tolerate_budget_alarms(self._world)
        name = self._draw.choice(list(self._world.gpus))
        pools = [name for _, name in self._world.kube.store.of(POOLS)]
        labels = {POOL_LABEL: self._draw.choice((SHARED, *pools, None))}
        await self._world.kube.patch(NODES, name, {"metadata": {"labels": labels}})

    async def cordon(self) -> None:
        """Cordon a node, and mostly uncordon it."""
        name = self._draw.choice(list(self._world.gpus))
        await self.set_unschedulable(name, True)
        await asyncio.sleep(self._draw.uniform(0.1, 2.0))
        if self._draw.random() < 0.6:
            await self.set_unschedulable(name, False)

    async def delete_node(self) -> None:
        """Delete a node and kill its agent, then create it again: a replaced machine."""
        nodes = [name for _, name in self._world.kube.store.of(NODES)]
        if not nodes:
            return
        tolerate_budget_alarms(self._world)
        name = self._draw.choice(nodes)
        pool = self._world.kube.store.get(NODES, name, "")["metadata"]["labels"].get(POOL_LABEL)
        away_s = self._draw.uniform(0.2, 12.0)
        restart_s = away_s + self._draw.uniform(0.1, 1.0)
        self._world.kill(f"agent-{name}", "its node is deleted", restart_s)
        await self._world.kube.delete(NODES, name)
        self._world.loop.run_outside(self._create_node(name, pool or SHARED, away_s))

    async def delete_pool(self) -> None:
        """Delete a pool, and often create it again."""
        pools = [name for _, name in self._world.kube.store.of(POOLS)]
        if not pools:
            return
        tolerate_budget_alarms(self._world)
        name = self._draw.choice(pools)
        await self._lose_pool(name)
        if self._draw.random() < 0.7:
            self._world.loop.run_outside(self._make_pool(name, self._draw.uniform(0.01, 15.0)))

    async def recreate_pool(self) -> None:
        """Without a leader, delete and create a pool and lose its log and facts, in any order:
        only claims still show that it existed before."""
        pools = [name for _, name in self._world.kube.store.of(POOLS)]
        if not pools:
            return
        tolerate_budget_alarms(self._world)
        away_s = self._draw.uniform(3.0, 12.0)
        sleeps = self._draw.random() < 0.5
        for leader in ("cc-1", "cc-2"):
            if sleeps:
                self._world.pause(leader, away_s)
            else:
                self._world.kill(leader, "no leader", away_s)
        name = self._draw.choice(pools)
        steps = [self._lose_logs, self._lose_facts, self._recreate_pool]
        for step in self._draw.sample(steps, len(steps)):
            await asyncio.sleep(self._draw.choice((0.0, 0.0, 0.3, 2.0)))
            await step(name)

    async def create_pool(self) -> None:
        """Create another pool, and move a node to it."""
        tolerate_budget_alarms(self._world)
        await self._make_pool(SPARE, 0.0)
        name = self._draw.choice(list(self._world.gpus))
        labels = {POOL_LABEL: SPARE}
        await self._world.kube.patch(NODES, name, {"metadata": {"labels": labels}})

    async def overlap_pools(self) -> None:
        """Let a pool select every node, or only its own again; other pools keep their nodes."""
        tolerate_budget_alarms(self._world)
        await self._make_pool(SPARE, 0.0)
        selector: dict[str, str] | None = self._draw.choice(({}, {}, None))
        await self._world.kube.patch(POOLS, SPARE, {"spec": {"nodeSelector": selector}})

    async def change_ratio(self) -> None:
        """Change a pool's oversubscription."""
        pools = self._world.kube.store.of(POOLS)
        if not pools:
            return
        name = self._draw.choice([name for _, name in pools])
        ratio = self._draw.choice((1, 1.5, 2, 3))
        spec = pools["", name]["spec"].get("capacityConfig") or {}
        before = float(spec.get("oversubscription", {}).get("tflopsRatio", 1))
        if ratio < before and not self._may_lower_budgets:
            return
        if ratio < before:
            self._world.tolerated.update(BUDGET_ALARMS)
        oversubscription = {"tflopsRatio": str(ratio), "vramRatio": str(ratio)}
        change = {"spec": {"capacityConfig": {"oversubscription": oversubscription}}}
        await self._world.kube.patch(POOLS, name, change)

    async def change_owner(self) -> None:
        """Give a pool to kube-scheduler, or to dray."""
        pools = self._world.kube.store.of(POOLS)
        if not pools:
            return
        name = self._draw.choice([name for _, name in pools])
        before = pools["", name]["spec"].get("owner", OWNER_DRAY)
        after = OWNER_DRAY if before == OWNER_KUBE_SCHEDULER else OWNER_KUBE_SCHEDULER
        await self._world.kube.patch(POOLS, name, {"spec": {"owner": after}})
        if self._draw.random() < 0.3:  # a mistake that is reverted
            await asyncio.sleep(self._draw.uniform(0.0, 5.0))
            await self._world.kube.patch(POOLS, name, {"spec": {"owner": before}})

    async def change_policy(self) -> None:
        """Change the placement mode."""
        mode = self._draw.choice(("CompactFirst", "LowLoadFirst"))
        await self._world.kube.patch(POLICIES, "policy", {"spec": {"placement": {"mode": mode}}})

    async def repair(self) -> None:
        """Create missing pools, give all pools to dray, reset their selectors, uncordon nodes."""
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

    async def _lose_logs(self, pool: str) -> None:
        prefix = log_stream(pool, 0).removesuffix("0")
        for name in [name for name in self._world.bus.server.streams if name.startswith(prefix)]:
            self._world.bus.server.delete(name)

    async def _lose_facts(self, pool: str) -> None:
        self._world.bus.server.delete(FACTS_STREAM)

    async def _recreate_pool(self, pool: str) -> None:
        await self._lose_pool(pool)
        await self._make_pool(pool, self._draw.uniform(0.0, 3.0))

    async def _lose_pool(self, name: str) -> None:
        """Delete a pool at once, though it is in use: its finalizer is removed by hand."""
        await self._world.kube.delete(POOLS, name)
        with suppress(NotFoundError):
            await self._world.kube.patch(POOLS, name, {"metadata": {"finalizers": None}})

    async def _create_node(self, name: str, pool: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._world.kube.create(NODES, node_object(name, pool))

    async def _make_pool(self, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            await self._world.kube.create(POOLS, pool_object(name))
        except AlreadyExistsError:
            return
