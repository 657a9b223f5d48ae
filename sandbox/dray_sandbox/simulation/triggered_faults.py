"""Stops a process right before a particular call, and changes the cluster meanwhile."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from dray.api.errors import DrayError
from dray.api.names import POOL_LABEL
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, NODES, PODS
from dray_sandbox.simulation.administrators import budgets_may_fall
from dray_sandbox.simulation.cluster import TEAM
from dray_sandbox.simulation.fault_rates import TriggeredFault
from dray_sandbox.simulation.faults import Fault
from dray_sandbox.simulation.world import SimulatedWorld

TRIGGERS = (
    ("cc", "kube.patch", "pods/"),
    ("cc", "kube.patch", "gpupools/"),
    ("cc", "kube.bind", ""),
    ("cc", "bus.append", ""),
    ("alloc", "bus.append", ""),
    ("alloc", "bus.publish", "dray.cmd."),
    ("agent", "bus.request", "dray.rpc.inventory."),
    ("agent", "kube.update", "resourceslices/"),
)
"""Whose call, which, about what."""
FACTS = ("claim", "claim", "pod", "slice", "node", "domain", "synced")


class TriggeredFaults:
    """One seed's triggered faults; ``others`` are faults that may happen meanwhile."""

    def __init__(
        self,
        world: SimulatedWorld,
        draw: random.Random,
        others: Sequence[Callable[[], Awaitable[None]]],
    ) -> None:
        self._world = world
        self._draw = draw
        self._others = others

    async def on_anybody(self) -> None:
        """A call of any process."""
        processes, call, what = self._draw.choice(TRIGGERS)
        sleep_s = self._draw.choice((1.0, 4.0, 20.0, 28.0, 40.0))
        self._world.triggered_fault = TriggeredFault(processes, call, what, sleep_s, self._anything)

    async def on_who_writes(self) -> None:
        """The leader, about to mark a claim or to allocate it: its log is lost, another leads,
        and it wakes when its decision has just been voided."""
        then = self._draw.choice((self._logs_lost, self._logs_lost, self._anything))
        self._world.triggered_fault = TriggeredFault(
            "cc", "kube.patch", "resourceclaims/", 45.0, then, wakes_when_void=True
        )

    async def on_what_is_written(self) -> None:
        """The leader's patch of a claim is long on its way; the pool loses its nodes meanwhile,
        and the leader itself voids what it is about to write."""
        self._world.triggered_fault = TriggeredFault(
            "cc",
            "kube.patch",
            "resourceclaims/",
            self._draw.choice((2.0, 5.0, 9.0)),
            self._nodes_leave,
            fault=Fault.SLOW,
        )

    async def on_who_publishes(self) -> None:
        """The leader, about to publish a fact: what the fact is about goes meanwhile."""
        what = f"dray.state.{self._draw.choice(FACTS)}."
        then = self._draw.choice((self._subject_goes, self._subject_goes, self._anything))
        sleep_s = self._draw.choice((18.0, 25.0, 40.0))
        self._world.triggered_fault = TriggeredFault("cc", "bus.publish", what, sleep_s, then)

    async def _anything(self, what: str) -> None:
        await asyncio.sleep(self._draw.uniform(0.0, 2.0))
        if self._world.harming and self._draw.random() < 0.7:
            await self._try(self._draw.choice(self._others))

    async def _logs_lost(self, what: str) -> None:
        await asyncio.sleep(self._draw.uniform(0.0, 1.0))
        server = self._world.bus.server
        for name in [name for name in server.streams if name.startswith("DRAY_DECISIONS")]:
            server.delete(name)

    async def _nodes_leave(self, what: str) -> None:
        budgets_may_fall(self._world)
        name = what.removesuffix("/status").rpartition("/")[2]
        claim = self._world.kube.store.of(CLAIMS).get((TEAM, name))
        pool = None if claim is None else claim_from(claim).pool
        left = [
            node["metadata"]["name"]
            for node in self._world.kube.store.of(NODES).values()
            if node["metadata"]["labels"].get(POOL_LABEL) == pool
        ]
        for labels, pause_s in (({POOL_LABEL: None}, 4.0), ({POOL_LABEL: pool}, 0.0)):
            for node in left:
                await self._try(
                    partial(self._world.kube.patch, NODES, node, {"metadata": {"labels": labels}})
                )
            await asyncio.sleep(pause_s)

    async def _subject_goes(self, subject: str) -> None:
        """The pod that a fact, or its claim, is about."""
        await asyncio.sleep(self._draw.uniform(0.0, 3.0))
        uid = subject.rpartition(".")[2]
        for obj in self._world.kube.store.of(CLAIMS).values():
            if obj["metadata"]["uid"] == uid:
                uid = claim_from(obj).pod_uid
        for (namespace, name), obj in list(self._world.kube.store.of(PODS).items()):
            if obj["metadata"]["uid"] == uid and namespace == TEAM:
                await self._world.kube.delete(PODS, name, namespace)

    async def _try(self, fault: Callable[[], Awaitable[Any]]) -> None:
        try:
            await fault()
        except DrayError as error:
            self._world.trace.say("MONKEY", f"meanwhile: {error}")
