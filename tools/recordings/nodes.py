"""Node-agents with journals, which also make the kubelet's calls."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dray.api.errors import DrayError
from dray.bus.ports import Bus
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, Kube
from dray.messages.inputs import AgentNoted
from dray.recording.journal import Journal
from dray_node_agent.agent import NodeAgent
from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.files.cdi_folder import CdiFolder
from dray_node_agent.files.checkpoint import CheckpointFile, LoadedCheckpoint
from dray_node_agent.gpus.reader import GpuReader
from dray_node_agent.kubelet.prepared_claims import PreparedClaims
from dray_node_agent.kubelet.preparer import ClaimRef, Preparer
from dray_node_agent.node_state import NodeFollower, NodeReporter
from dray_node_agent.rule_recorder import AgentRuleRecorder
from dray_node_agent.settings import NodeGroup
from dray_node_agent.slice_publisher import SlicePublisher
from tools.simulation import processes


class NodeDisk(processes.Disk):
    """A node's disk, with the checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: dict[str, PreparedClaim] | None = None


class _Checkpoint(CheckpointFile):
    def __init__(self, disk: NodeDisk) -> None:
        super().__init__(Path("unused"), "boot")
        self._disk = disk

    def load(self) -> LoadedCheckpoint:
        """See ``CheckpointFile.load``."""
        claims = self._disk.claims
        return LoadedCheckpoint(claims or {}, "boot", fresh=claims is None)

    def save(self, claims: Mapping[str, PreparedClaim]) -> None:
        """See ``CheckpointFile.save``."""
        self._disk.claims = dict(claims)


class _NoFiles(CdiFolder):
    def __init__(self) -> None:
        super().__init__(Path("unused"))

    def write(self, claim_uid: str, spec: Any) -> None:
        """See ``CdiFolder.write``."""

    def remove(self, claim_uid: str) -> None:
        """See ``CdiFolder.remove``."""

    def claims(self) -> tuple[str, ...]:
        """See ``CdiFolder.claims``."""
        return ()


def node_agent(node_gpus: processes.SimulatedNodeGpus, disk: NodeDisk) -> processes.ProcessFactory:
    """The node-agent with its journal, which also makes the kubelet's calls."""

    def begin(kube: Kube, bus: Bus, name: str) -> processes.RunningLoops:
        clock = processes.VirtualClock()
        journal = Journal(bus, AgentNoted, clock, instance=name)
        recorder = AgentRuleRecorder(journal)
        reporter = NodeReporter(bus, node_gpus.node, f"/node-agent/{name}", clock)
        publisher = SlicePublisher(kube, node_gpus.node, disk, recorder)
        agent = NodeAgent(
            node=NodeGroup(name=node_gpus.node, poll=1.0),
            gpus=GpuReader(node_gpus),
            publisher=publisher,
            reporter=reporter,
        )
        reporter.on_generation = agent.on_generation
        agent.on_registered("")
        preparer = Preparer(
            kube=kube,
            node=node_gpus.node,
            inventory=agent.inventory,
            prepared_claims=PreparedClaims(_Checkpoint(disk), _NoFiles()),
            clock=clock,
            on_prepared=reporter.prepared,
            recorder=recorder,
        )
        follower = NodeFollower(
            bus, node_gpus.node, agent.on_state, agent.on_generation, reporter.repeat
        )
        return processes.RunningLoops(
            [
                agent.watch_gpus(),
                agent.publish(),
                agent.watch_slices(),
                follower.run(),
                reporter.report_inventory(),
                reporter.report_events(),
                journal.run(),
                _prepare(kube, preparer, node_gpus.node),
            ]
        )

    return begin


async def _prepare(kube: Kube, preparer: Preparer, node: str) -> None:
    """As a kubelet: prepare the node's reserved claims, unprepare removed ones."""
    await _retry(preparer.restore)
    while True:
        await asyncio.sleep(1.5)
        try:
            found = [claim_from(obj) for obj in (await kube.list(CLAIMS)).objects]
            here = {
                claim.uid: ClaimRef(claim.namespace, claim.uid, claim.name)
                for claim in found
                if claim.allocation is not None
                and claim.allocation.node == node
                and claim.reserved_for
            }
            known = preparer.claims
            await preparer.prepare([ref for uid, ref in here.items() if uid not in known])
            gone = [one for uid, one in known.items() if uid not in here]
            await preparer.unprepare([ClaimRef(one.namespace, one.uid, one.name) for one in gone])
            await preparer.sweep()
        except DrayError:
            continue


async def _retry(work: Callable[[], Any]) -> None:
    while True:
        try:
            await work()
            return
        except DrayError:
            await asyncio.sleep(0.5)
