"""Brings the node's ResourceSlices in the API server to what they should be."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import structlog

from dray.domain.errors import TemporaryError
from dray.domain.names import DRIVER
from dray.kube.ports import NODES, SLICES, Kube, NotFoundError, Object
from dray.messages.facts import ClusterObserved
from dray_node_agent.boards.ports import Reading
from dray_node_agent.comparing import Changes, Path, dropped_fields, in_words, regained
from dray_node_agent.deciding import Publish, Seam
from dray_node_agent.inventory import NodeState
from dray_node_agent.record import Record, RecordFile


class NodeMissingError(TemporaryError):
    """The Node object does not exist yet; the kubelet makes it."""


class Publisher:
    """Publishes one node's slices. Not for concurrent use.

    Slices stay when the agent ends: cards in use must not vanish from the scheduler's view
    while the agent is replaced. The kubelet wipes those of a driver that stays away.
    """

    def __init__(self, kube: Kube, node: str, file: RecordFile, seam: Seam | None = None) -> None:
        self._kube = kube
        self._node = node
        self._file = file
        self._seam = seam or Seam()
        self._record: Record | None = None
        self._dropped: frozenset[Path] = frozenset()
        self.floor = 0
        """A generation this node has had, whatever the disk and the API server remember."""

    @property
    def dropped(self) -> tuple[str, ...]:
        """Fields the server did not keep (a feature gate is off), in words."""
        return tuple(sorted(in_words(path) for path in self._dropped))

    def expect(self, server: ClusterObserved) -> None:
        """Publish anew what the server dropped once and is said to keep now."""
        self._dropped -= regained(self._dropped, server)

    async def record(self) -> Record:
        """What was remembered over restarts."""
        if self._record is None:
            self._record = await asyncio.to_thread(self._file.load)
        return self._record

    async def publish(self, reading: Reading, state: NodeState) -> int:
        """Make the API server show ``reading``; the pool's generation, higher if anything
        changed. Deletes come first, then updates, then creates.

        Raises:
            NodeMissingError: the node has no Node object yet.
            ConflictError, KubeUnavailableError: call again.
            RefusedError: the server does not accept the slices.
        """
        owned = replace(state, uid=await self._node_uid())
        existing = await self._existing()
        remembered = (await self.record()).generation
        planned = self._seam.ask(
            Publish(
                reading=reading,
                state=owned,
                existing=existing,
                dropped=tuple(sorted(self._dropped)),
                floor=self.floor,
                remembered=remembered,
            )
        )
        if planned.writes is None:
            await self._remember(max(planned.generation, remembered), state)
        else:
            await self._remember(planned.generation, state)
            await self._write(planned.writes)
        return planned.generation

    async def changes(self) -> AsyncIterator[None]:
        """Something happened to slices of this node, by our hand or another's."""
        selector = f"spec.nodeName={self._node}"
        async for _ in self._kube.watch(SLICES, field_selector=selector):
            yield

    async def _write(self, plan: Changes) -> None:
        for one in plan.deletes:
            await self._delete(one)
        dropped: frozenset[Path] = frozenset()
        for one in plan.updates:
            dropped |= dropped_fields(one, await self._kube.update(SLICES, one))
        for one in plan.creates:
            dropped |= dropped_fields(one, await self._kube.create(SLICES, one))
        if dropped != self._dropped:
            self._dropped = dropped
            self._report_dropped()

    def _report_dropped(self) -> None:
        log = structlog.get_logger()
        if not self._dropped:
            log.info("the API server keeps every field of the slices", node=self._node)
            return
        log.error(
            "the API server dropped fields of the slices: a feature gate is off there",
            node=self._node,
            fields=self.dropped,
            consequence="without taints kube-scheduler may allocate these cards; without "
            "allowMultipleAllocations or request policies a card can't be shared",
        )

    async def _node_uid(self) -> str:
        try:
            node = await self._kube.get(NODES, self._node)
        except NotFoundError as error:
            raise NodeMissingError(
                f"there is no Node {self._node}: is DRAY_NODE__NAME right, and the kubelet up?"
            ) from error
        return str(node["metadata"]["uid"])

    async def _existing(self) -> tuple[Object, ...]:
        listed = await self._kube.list(SLICES, field_selector=f"spec.nodeName={self._node}")
        ours = [
            one
            for one in listed.objects
            if one["spec"]["driver"] == DRIVER and one["spec"].get("nodeName") == self._node
        ]
        return tuple(sorted(ours, key=lambda one: str(one["metadata"]["name"])))

    async def _delete(self, one: Object) -> None:
        metadata = one["metadata"]
        await self._kube.delete(SLICES, metadata["name"], uid=metadata["uid"])

    async def _remember(self, generation: int, state: NodeState) -> None:
        record = Record(generation, state)
        if record != await self.record():
            await asyncio.to_thread(self._file.save, record)
            self._record = record
