"""Many simulated nodes in one process: what kubelet and node-agent of each would publish.

    fleet = Fleet(kube, simulated_nodes(500, pools=["big"]), bus=bus)
    await fleet.publish()
    following = asyncio.create_task(fleet.follow())

Nodes and ResourceSlices are the agents' own, made by their own code. Nobody runs pods here, nobody
prepares claims, and all cards are healthy: what is tested or measured ends with the binding.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from dray.bus.ports import Bus
from dray.bus.topology import FACTS_STREAM
from dray.kube.ports import (
    NODES,
    SLICES,
    AlreadyExistsError,
    ConflictError,
    Kube,
    NotFoundError,
    Object,
)
from dray.messages.base import decode, subject_prefix
from dray.messages.facts import NodeObserved
from dray_node_agent.decisions.inventory import NodeState, slices
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_sandbox.kubelet.node import NOT_READY_TAINTS, node_object
from dray_sandbox.kubelet.plan import NodePlan
from dray_sandbox.layout import NODE_CAPACITY, SimulatedNode

AT_ONCE = 16
"""Nodes that are written at the same time."""
T = TypeVar("T")
_NOWHERE = Path("/nonexistent")


@dataclass(slots=True)
class _Member:
    """One node, and what was published of it."""

    node: SimulatedNode
    state: NodeState
    generation: int = 0
    published: Object | None = None
    """Its slice, as the server answered."""


class NodeFleet:
    """Publishes ``nodes``; ``follow`` keeps their slices as the claim-controller's facts say.

    ``state_of``: what a node's agent knows of its pool before the bus tells it; the default is
    a node in no pool. ``taints``: of every Node, from the start. Without a ``bus`` nothing can be
    followed. 64 cards a node at most: one slice each.
    """

    def __init__(
        self,
        kube: Kube,
        nodes: Sequence[SimulatedNode],
        *,
        bus: Bus | None = None,
        state_of: Callable[[SimulatedNode], NodeState] = lambda node: NodeState(node.name),
        capacity: Mapping[str, str] = NODE_CAPACITY,
        taints: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self._kube = kube
        self._bus = bus
        self._capacity = capacity
        self._taints = tuple(taints)
        self._members = {node.name: _Member(node, state_of(node)) for node in nodes}

    async def publish(self, told: Callable[[int], None] = lambda count: None) -> None:
        """Make every Node ready and publish its slices; ``told`` of each node done.

        What a former fleet of the same nodes has left is taken over.
        """
        done = 0

        async def one(member: _Member) -> None:
            nonlocal done
            await self._register(member)
            await self._write_slices(member)
            done += 1
            told(done)

        await at_once(one, self._members.values())

    async def follow(self) -> None:
        """Publish slices anew whenever a node's pool, owner, qos or ratios change; for ever."""
        assert self._bus is not None, "a fleet without a bus hears nothing"
        async for delivered in self._bus.read(
            FACTS_STREAM, subjects=[f"{subject_prefix(NodeObserved)}.>"]
        ):
            fact = decode(delivered, NodeObserved)
            member = self._members.get(fact.node.name)
            if member is None or fact.deleted:
                continue
            state = replace(NodeState.of(fact.node), uid=member.state.uid)
            if state != member.state:
                member.state = state
                await self._write_slices(member)

    async def _register(self, member: _Member) -> None:
        node = member.node
        # The folders are those of plugins, and there are none.
        plan = NodePlan(
            node.name, _NOWHERE, _NOWHERE, _NOWHERE, dict(node.labels), dict(self._capacity)
        )
        wanted = node_object(plan, now_unix_s=time.time())
        wanted["spec"] = {"taints": [dict(taint) for taint in self._taints]}
        try:
            made = await self._kube.create(NODES, wanted)
        except AlreadyExistsError:
            made = await self._kube.get(NODES, node.name)
        member.state = replace(member.state, uid=made["metadata"]["uid"])
        await self._take_not_ready_off(made)

    async def _take_not_ready_off(self, made: Object) -> None:
        taints = (made.get("spec") or {}).get("taints") or []
        kept = [taint for taint in taints if taint["key"] not in NOT_READY_TAINTS]
        if kept != taints:
            await self._kube.patch(
                NODES, made["metadata"]["name"], {"spec": {"taints": kept or None}}
            )

    async def _write_slices(self, member: _Member) -> None:
        node = member.node
        reading = SimulatedGpus(node.name, node.model, node.gpus).read()
        (wanted,) = slices(reading, member.state, generation=member.generation + 1)
        member.published = await self._put(wanted, member.published)
        member.generation = member.published["spec"]["pool"]["generation"]

    async def _put(self, wanted: Object, known: Object | None) -> Object:
        while True:
            if known is None:
                with suppress(AlreadyExistsError):
                    return await self._kube.create(SLICES, wanted)
                known = await self._kube.get(SLICES, wanted["metadata"]["name"])
            try:
                return await self._kube.update(SLICES, _following(known, wanted))
            except (ConflictError, NotFoundError):
                known = None


def _following(known: Object, wanted: Object) -> Object:
    """``wanted`` in place of ``known``, by a higher generation."""
    generation = max(known["spec"]["pool"]["generation"] + 1, wanted["spec"]["pool"]["generation"])
    version = {"resourceVersion": known["metadata"]["resourceVersion"]}
    pool = wanted["spec"]["pool"] | {"generation": generation}
    return wanted | {
        "metadata": wanted["metadata"] | version,
        "spec": wanted["spec"] | {"pool": pool},
    }


async def at_once(work: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    """``work`` of every item, ``AT_ONCE`` at a time. Raises an ExceptionGroup of what failed."""
    waiting = iter(items)

    async def hand() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(hand())
