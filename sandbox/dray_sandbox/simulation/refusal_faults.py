"""Draws which requests a server refuses from now on, and has a tenant whose pods they are about."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from dray.kube.ports import CLAIMS, NODES, PODS, POOLS, SLICES
from dray_sandbox.simulation.cluster import DEDICATED, SHARED, TEAM
from dray_sandbox.simulation.fault_rates import TriggeredFault
from dray_sandbox.simulation.faults import Fault
from dray_sandbox.simulation.refusals import (
    ALONE,
    MOST_PODS,
    TENANT,
    About,
    Case,
    LastingRefusal,
    cases,
    refuse,
)
from dray_sandbox.simulation.world import SimulatedWorld

ELECTED_S: Final = 16.0
"""Until another leads, and has published everything, once the leader is dead."""
_REPLACED_S: Final = 30.0
"""The same, once the leader can't renew its Lease."""
MakePod = Callable[[str, str, bool], Awaitable[None]]
"""Creates a pod, by namespace and name, that fits somewhere or nowhere."""


class RefusalFaults:
    """One seed's refusals: at most one is in force at a time."""

    def __init__(self, world: SimulatedWorld, draw: random.Random, make_pod: MakePod) -> None:
        self._world = world
        self._draw = draw
        self._make_pod = make_pod
        self._odd: list[tuple[str, str]] = []
        """Namespaces and names of the pods that were created to be refused."""

    async def refuse_pod(self) -> None:
        """Requests about one pod and what belongs to it, or about a tenant's."""
        await self._one_of(About.POD, About.NAMESPACE)

    async def refuse_node(self) -> None:
        """Requests about one node."""
        await self._one_of(About.NODE)

    async def refuse_pool(self) -> None:
        """Requests about one pool."""
        await self._one_of(About.POOL)

    async def refuse_process(self) -> None:
        """What one process writes for itself."""
        await self._one_of(About.PROCESS)

    async def lift(self) -> None:
        """Serve everything again; what could not be read, or was too large, is written anew."""
        refusals = tuple(self._world.refusals)
        self._world.lift()
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
        """Have a case in force, and pods that it is about."""
        about = case.kind.about
        if about is About.NAMESPACE or (about is About.POD and self._draw.random() < 0.5):
            number = self._draw.choice((1, 3, MOST_PODS, MOST_PODS))
            odd = [(TENANT, f"{TENANT}-{index}") for index in range(number)]
            await self._create(odd, refuse(case, "", TENANT))
        elif about is About.POD:
            await self._create([(TEAM, ALONE)], refuse(case, ALONE, TEAM))
        elif about is About.NODE:
            self._world.refuse(refuse(case, self._draw.choice(list(self._world.boards))))
        elif about is About.POOL:
            self._world.refuse(refuse(case, self._draw.choice((DEDICATED, SHARED))))
        else:
            self._world.refuse(refuse(case, self._world.leader() or "cc-1"))
            self._world.disturb(_REPLACED_S)

    async def delete_odd(self) -> None:
        """Users delete the pods that are refused."""
        for namespace, name in self._odd:
            await self._world.kube.delete(PODS, name, namespace)

    async def replace_pods(self) -> None:
        """Users delete the pods that are refused, and create others of the same names."""
        for namespace, name in self._odd:
            await self._world.kube.delete(PODS, name, namespace, grace_period_s=0)
            await self._make_pod(namespace, name, True)

    async def fail_once(self) -> None:
        """The next patch of a claim that is refused fails, and its writer looks what there is."""
        self._world.triggered_fault = TriggeredFault(
            "cc", "kube.patch", f"resourceclaims/{TENANT}-", 0.0, _nothing, fault=Fault.REFUSED
        )

    async def kill_leader(self) -> None:
        """Another leads, or the same again."""
        if leader := self._world.leader():
            self._world.kill(leader, "another is to lead", self._draw.choice((0.5, 30.0)))
            self._world.disturb(ELECTED_S)

    async def _one_of(self, *about: About) -> None:
        known = [case for case in cases() if case.kind.about in about]
        if not self._world.refusals:
            await self.begin(self._draw.choice(known))

    async def _create(self, odd: list[tuple[str, str]], refusal: LastingRefusal) -> None:
        is_known_before = self._draw.random() < 0.5
        if is_known_before:
            self._world.refuse(refusal)
        for namespace, name in odd:
            await self._make_pod(namespace, name, not refusal.case.kind.is_of_waiting)
        self._odd = odd
        if not is_known_before:
            await asyncio.sleep(self._draw.choice((0.0, 0.05, 0.3)))
            self._world.refuse(refusal)


async def _nothing(_: str) -> None:
    """What happens meanwhile."""
