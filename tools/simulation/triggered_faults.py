"""Faults that stop a process before a particular call and change the cluster meanwhile."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from dray.api.errors import DrayError
from dray.api.names import POOL_LABEL
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, NODES, PODS
from tools.simulation.administrators import tolerate_budget_alarms
from tools.simulation.cluster import TEAM
from tools.simulation.faults import Fault, TriggeredFault
from tools.simulation.world import SimulatedWorld

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
"""Prefix of the process, call, and prefix of its subject."""
FACTS = ("claim", "claim", "pod", "slice", "node", "domain", "synced")


class TriggeredFaults:
    """One seed's triggered faults; ``others`` are faults that may occur meanwhile."""

    def __init__(
        self,
        world: SimulatedWorld,
        draw: random.Random,
        others: Sequence[Callable[[], Awaitable[None]]],
    ) -> None:
        self._world = world
        self._draw = draw
        self._others = others

    async def pause_before_any_call(self) -> None:
        """Stop any process before a call."""
        processes, call, what = self._draw.choice(TRIGGERS)
        sleep_s = self._draw.choice((1.0, 4.0, 20.0, 28.0, 40.0))
        self._world.triggered_fault = TriggeredFault(processes, call, what, sleep_s, self._anything)

    async def pause_before_claim_patch(self) -> None:
        """Stop the leader before it marks or allocates a claim: its log is lost, another leader
        voids the decision, then the first one continues."""
        then = self._draw.choice((self._lose_logs, self._lose_logs, self._anything))
        self._world.triggered_fault = TriggeredFault(
            "cc", "kube.patch", "resourceclaims/", 45.0, then, wakes_when_void=True
        )

    async def delay_claim_patch(self) -> None:
        """Delay the leader's patch of a claim; meanwhile the pool loses its nodes, and the leader
        voids the decision."""
        self._world.triggered_fault = TriggeredFault(
            "cc",
            "kube.patch",
            "resourceclaims/",
            self._draw.choice((2.0, 5.0, 9.0)),
            self._nodes_leave,
            fault=Fault.SLOW,
        )

    async def pause_before_publish(self) -> None:
        """Stop the leader before it publishes a fact; meanwhile the fact's object is deleted."""
        what = f"dray.state.{self._draw.choice(FACTS)}."
        then = self._draw.choice((self._subject_goes, self._subject_goes, self._anything))
        sleep_s = self._draw.choice((18.0, 25.0, 40.0))
        self._world.triggered_fault = TriggeredFault("cc", "bus.publish", what, sleep_s, then)

    async def _anything(self, what: str) -> None:
        await asyncio.sleep(self._draw.uniform(0.0, 2.0))
        if self._world.faults_enabled and self._draw.random() < 0.7:
            await self._try(self._draw.choice(self._others))

    async def _lose_logs(self, what: str) -> None:
        await asyncio.sleep(self._draw.uniform(0.0, 1.0))
        server = self._world.bus.server
        for name in [name for name in server.streams if name.startswith("DRAY_DECISIONS")]:
            server.delete(name)

    async def _nodes_leave(self, what: str) -> None:
        tolerate_budget_alarms(self._world)
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
        """Delete the pod of a fact or of a fact's claim."""
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
            self._world.trace.record("FAULTS", f"meanwhile: {error}")
