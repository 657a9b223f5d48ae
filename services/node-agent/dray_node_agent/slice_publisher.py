"""Publishes the node's ResourceSlices."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import structlog

from dray.api.errors import TemporaryError
from dray.api.names import DRIVER
from dray.kube.ports import NODES, SLICES, Kube, NotFoundError, Object
from dray.messages.facts import ClusterObserved
from dray_node_agent.decisions.gpus import GpuSnapshot
from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.decisions.rules import PublishSlices
from dray_node_agent.decisions.slice_diff import (
    Path,
    SliceChanges,
    dropped_fields,
    has_joint_counters,
    now_kept,
    path_text,
)
from dray_node_agent.files.publication_record import PublicationRecord, PublicationRecordFile
from dray_node_agent.rule_recorder import AgentRuleRecorder


class NodeMissingError(TemporaryError):
    """The Node object does not exist yet; the kubelet creates it."""


class SlicePublisher:
    """Publishes one node's slices. Not for concurrent use.

    Slices stay when the agent ends: the scheduler sees the GPUs while the agent is replaced.
    The kubelet deletes the slices of a driver that does not return.
    """

    def __init__(
        self,
        kube: Kube,
        node: str,
        file: PublicationRecordFile,
        recorder: AgentRuleRecorder | None = None,
    ) -> None:
        self._kube = kube
        self._node = node
        self._file = file
        self._recorder = recorder or AgentRuleRecorder()
        self._record: PublicationRecord | None = None
        self._dropped: frozenset[Path] = frozenset()
        self._joint_counters = False
        self.floor = 0
        """A generation that this node had before, from the bus."""
        self.unhealthy: tuple[str, ...] = ()
        """The published devices that must not be allocated."""

    @property
    def dropped(self) -> tuple[str, ...]:
        """Fields that the server dropped (a feature gate is off), for people."""
        return tuple(sorted(path_text(path) for path in self._dropped))

    def expect(self, server: ClusterObserved) -> None:
        """Take the server's features. Fields that it once dropped and keeps now are published
        again."""
        self._joint_counters = has_joint_counters(server)
        self._dropped -= now_kept(self._dropped, server)

    async def record(self) -> PublicationRecord:
        """The record on disk."""
        if self._record is None:
            self._record = await asyncio.to_thread(self._file.load)
        return self._record

    def forget_record(self) -> None:
        """Read the record again: another agent of this node may have written it."""
        self._record = None

    async def publish(
        self,
        snapshot: GpuSnapshot,
        state: NodeState,
        in_use: Mapping[str, float] = MappingProxyType({}),
    ) -> int:
        """Publish ``snapshot``; returns the pool's generation, a new one if anything
        changed. Deletes come first, then updates, then creates. ``in_use``: the devices that
        claims use, with the part that is taken.

        Raises:
            NodeMissingError: the node has no Node object yet.
            ConflictError, KubeUnavailableError: call again.
            RefusedError: the server does not accept the slices.
        """
        owned = replace(state, uid=await self._node_uid())
        existing = await self._existing()
        remembered = (await self.record()).generation
        planned = self._recorder.evaluate(
            PublishSlices(
                snapshot=snapshot,
                state=owned,
                existing=existing,
                dropped=tuple(sorted(self._dropped)),
                floor=self.floor,
                remembered=remembered,
                joint_counters=self._joint_counters,
                in_use=dict(in_use),
            )
        )
        if planned.writes is None:
            await self._remember(max(planned.generation, remembered), state)
        else:
            await self._remember(planned.generation, state)
            await self._write(planned.writes)
        self.unhealthy = planned.unhealthy
        return planned.generation

    async def changes(self) -> AsyncIterator[None]:
        """Yields after any change of this node's slices."""
        selector = f"spec.nodeName={self._node}"
        async for _ in self._kube.watch(SLICES, field_selector=selector):
            yield

    async def _write(self, plan: SliceChanges) -> None:
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
            consequence="without taints kube-scheduler may allocate these GPUs; without "
            "allowMultipleAllocations or request policies a GPU can't be shared",
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
        record = PublicationRecord(generation, state)
        if record != await self.record():
            await asyncio.to_thread(self._file.save, record)
            self._record = record
