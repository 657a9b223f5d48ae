"""Chooses lasting refusals of requests, and creates the tenant's pods that they concern."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from dray.kube.ports import CLAIMS, NODES, PODS, POOLS, SLICES
from tools.simulation.cluster import DEDICATED, SHARED, TEAM
from tools.simulation.faults import Fault, TriggeredFault
from tools.simulation.refusals import (
    MOST_PODS,
    SINGLE_POD,
    TENANT,
    Case,
    LastingRefusal,
    RefusalScope,
    cases,
    refuse,
)
from tools.simulation.world import SimulatedWorld

ELECTED_S: Final = 16.0
"""Time until another replica leads and has published everything after the leader was killed."""
_REPLACED_S: Final = 30.0
"""The same time after the leader could no longer renew its Lease."""
MakePod = Callable[[str, str, bool], Awaitable[None]]
"""Creates a pod, by namespace and name, that is schedulable or not."""


class RefusalFaults:
    """One seed's refusals: at most one is in force at a time."""

    def __init__(self, world: SimulatedWorld, draw: random.Random, make_pod: MakePod) -> None:
        self._world = world
        self._draw = draw
        self._make_pod = make_pod
        self._odd: list[tuple[str, str]] = []
        """Namespaces and names of the pods that were created to be refused."""

    async def refuse_pod(self) -> None:
        """Refuse requests about one pod and its objects, or about all pods of a tenant."""
        await self._one_of(RefusalScope.POD, RefusalScope.NAMESPACE)

    async def refuse_node(self) -> None:
        """Refuse requests about one node."""
        await self._one_of(RefusalScope.NODE)

    async def refuse_pool(self) -> None:
        """Refuse requests about one pool."""
        await self._one_of(RefusalScope.POOL)

    async def refuse_process(self) -> None:
        """Refuse one process' requests about itself."""
        await self._one_of(RefusalScope.PROCESS)

    async def lift_refusals(self) -> None:
        """End the refusals; objects that were unreadable or too large are written again."""
        refusals = tuple(self._world.refusals)
        self._world.lift_refusals()
        if not any(one.is_of_content for one in refusals):
            return
        patch = {"metadata": {"annotations": {"chaos/form": "known"}}}
        for resource in (CLAIMS, PODS, NODES, SLICES, POOLS):
            for obj in list(self._world.kube.store.of(resource).values()):
                metadata = obj["metadata"]
                await self._world.kube.patch(
                    resource, metadata["name"], patch, metadata.get("namespace", "")
                )

    async def begin(self, case: Case) -> None:
        """Start refusing a case, with pods that it concerns."""
        scope = case.kind.scope
        if scope is RefusalScope.NAMESPACE or (
            scope is RefusalScope.POD and self._draw.random() < 0.5
        ):
            number = self._draw.choice((1, 3, MOST_PODS, MOST_PODS))
            odd = [(TENANT, f"{TENANT}-{index}") for index in range(number)]
            await self._create(odd, refuse(case, "", TENANT))
        elif scope is RefusalScope.POD:
            await self._create([(TEAM, SINGLE_POD)], refuse(case, SINGLE_POD, TEAM))
        elif scope is RefusalScope.NODE:
            self._world.refuse(refuse(case, self._draw.choice(list(self._world.gpus))))
        elif scope is RefusalScope.POOL:
            self._world.refuse(refuse(case, self._draw.choice((DEDICATED, SHARED))))
        else:
            self._world.refuse(refuse(case, self._world.leader() or "cc-1"))
            self._world.extend_grace(_REPLACED_S)

    async def delete_odd(self) -> None:
        """Delete the refused pods."""
        for namespace, name in self._odd:
            await self._world.kube.delete(PODS, name, namespace)

    async def replace_pods(self) -> None:
        """Delete the refused pods, and create others with the same names."""
        for namespace, name in self._odd:
            await self._world.kube.delete(PODS, name, namespace, grace_period_s=0)
            await self._make_pod(namespace, name, True)

    async def fail_once(self) -> None:
        """Fail the next patch of a refused claim, so that its writer reads it."""
        self._world.triggered_fault = TriggeredFault(
            "cc", "kube.patch", f"resourceclaims/{TENANT}-", 0.0, _nothing, fault=Fault.REFUSED
        )

    async def kill_leader(self) -> None:
        """Kill the leader, for a moment or for longer than its lease."""
        if leader := self._world.leader():
            self._world.kill(leader, "end of the term", self._draw.choice((0.5, 30.0)))
            self._world.extend_grace(ELECTED_S)

    async def _one_of(self, *scopes: RefusalScope) -> None:
        known = [case for case in cases() if case.kind.scope in scopes]
        if not self._world.refusals:
            await self.begin(self._draw.choice(known))

    async def _create(self, odd: list[tuple[str, str]], refusal: LastingRefusal) -> None:
        is_known_before = self._draw.random() < 0.5
        if is_known_before:
            self._world.refuse(refusal)
        for namespace, name in odd:
            await self._make_pod(namespace, name, not refusal.case.kind.needs_unschedulable_pod)
        self._odd = odd
        if not is_known_before:
            await asyncio.sleep(self._draw.choice((0.0, 0.05, 0.3)))
            self._world.refuse(refusal)


async def _nothing(_: str) -> None:
    """Do nothing meanwhile."""
