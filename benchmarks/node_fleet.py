"""Many simulated nodes in one process: the objects that each one's kubelet and agent publish.

    fleet = NodeFleet(kube, simulated_nodes(500, pools=["big"]), bus=bus)
    await fleet.publish()
    following = asyncio.create_task(fleet.follow())

Nodes and ResourceSlices are built by the agent's own code. No pod runs, no claim is prepared, and
all GPUs are healthy: tests and benchmarks with a fleet end with the binding.
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
from dray_sandbox.kubelet.plan import NODE_CAPACITY, NodePlan
from dray_sandbox.layout import SimulatedNode

CONCURRENCY = 16
"""Nodes written at the same time."""
T = TypeVar("T")
_NO_FOLDER = Path("/nonexistent")


@dataclass(slots=True)
class _FleetNode:
    """One node, and the objects that were published for it."""

    node: SimulatedNode
    state: NodeState
    generation: int = 0
    published: Object | None = None
    """Its slice, as the API server returned it."""


class NodeFleet:
    """Publishes ``nodes``; ``follow`` updates their slices from the claim-controller's facts.

    ``state_of``: the initial state of a node; the default is a node in no pool. ``taints`` are set
    on every Node. ``follow`` needs ``bus``. A node has one slice, so at most 64 GPUs.
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
        self._members = {node.name: _FleetNode(node, state_of(node)) for node in nodes}

    async def publish(self, on_progress: Callable[[int], None] = lambda count: None) -> None:
        """Make every Node ready and publish its slice; ``on_progress`` gets the number of finished
        nodes.

        Objects of an earlier fleet of the same nodes are replaced.
        """
        done = 0

        async def one(member: _FleetNode) -> None:
            nonlocal done
            await self._register(member)
            await self._write_slices(member)
            done += 1
            on_progress(done)

        await run_limited(one, self._members.values())

    async def follow(self) -> None:
        """Loop: publish a node's slice again when its pool, owner, qos or ratios change."""
        assert self._bus is not None, "a fleet without a bus can't follow facts"
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

    async def _register(self, member: _FleetNode) -> None:
        node = member.node
        # There are no plugins, so no folders.
        plan = NodePlan(
            node.name, _NO_FOLDER, _NO_FOLDER, _NO_FOLDER, dict(node.labels), dict(self._capacity)
        )
        wanted = node_object(plan, now_unix_s=time.time())
        wanted["spec"] = {"taints": [dict(taint) for taint in self._taints]}
        try:
            made = await self._kube.create(NODES, wanted)
        except AlreadyExistsError:
            made = await self._kube.get(NODES, node.name)
        member.state = replace(member.state, uid=made["metadata"]["uid"])
        await self._remove_not_ready_taints(made)

    async def _remove_not_ready_taints(self, made: Object) -> None:
        taints = (made.get("spec") or {}).get("taints") or []
        kept = [taint for taint in taints if taint["key"] not in NOT_READY_TAINTS]
        if kept != taints:
            await self._kube.patch(
                NODES, made["metadata"]["name"], {"spec": {"taints": kept or None}}
            )

    async def _write_slices(self, member: _FleetNode) -> None:
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
                return await self._kube.update(SLICES, _replacing(known, wanted))
            except (ConflictError, NotFoundError):
                known = None


def _replacing(known: Object, wanted: Object) -> Object:
    """``wanted`` as an update of ``known``, with a higher generation."""
    generation = max(known["spec"]["pool"]["generation"] + 1, wanted["spec"]["pool"]["generation"])
    version = {"resourceVersion": known["metadata"]["resourceVersion"]}
    pool = wanted["spec"]["pool"] | {"generation": generation}
    return wanted | {
        "metadata": wanted["metadata"] | version,
        "spec": wanted["spec"] | {"pool": pool},
    }


async def run_limited(work: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    """Run ``work`` on every item, ``CONCURRENCY`` at a time. Raises an ExceptionGroup."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(worker())
