"""The cluster of ``benchmarks.day``: dray's four services with their default settings.

Only the logs are kept for minutes instead of a day, so that they reach their size in the first
hour. The webhook admits each pod. The node-agents prepare each claim in files of a folder.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import jsonpatch

from dray.api.names import DRAY_NAMESPACE
from dray.bus.backlog import Backlog
from dray.bus.ports import Bus
from dray.bus.topology import MIB
from dray.kube.convert import pod_from
from dray.kube.ports import CLAIMS, Kube, Object
from dray.runtime.settings import LogSettings
from dray_allocator.values.options import AllocatorOptions
from dray_claim_controller.settings import ControllerSettings, Logs, Streams
from dray_node_agent.agent import NodeAgent
from dray_node_agent.files.cdi_folder import CdiFolder
from dray_node_agent.files.checkpoint import CheckpointFile
from dray_node_agent.kubelet.prepared_claims import PreparedClaims
from dray_node_agent.kubelet.preparer import ClaimRef, Preparer
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionRequest
from dray_webhook.service.derived_templates import DerivedTemplates
from dray_webhook.service.facts_cache import FactsCache
from dray_webhook.service.handler import AdmissionHandler
from tools.simulation.loop import CURRENT, Process
from tools.simulation.processes import (
    Disk,
    PollingKubelets,
    RunningLoops,
    SimulatedNodeGpus,
    VirtualClock,
    agent_with,
    allocator_with,
    controller_with,
)
from tools.simulation.world import SimulatedWorld

T = TypeVar("T")
WEBHOOK: Final = "webhook-1"
SERVICES: Final = ("cc-1", "cc-2", "alloc-1", "alloc-2", WEBHOOK)
_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of a day, in virtual seconds."""

    hour_s: float = 3600.0
    life_s: float = 20.0
    """The longest time that a pod runs."""
    settling_s: float = 220.0
    """The time after each hour until its pods have ended and logs are trimmed."""
    log_kept_s: float = 60.0
    """Also the time between two checkpoints."""
    trim_every_s: float = 60.0


class DayCluster:
    """Replaces processes of a simulation, and calls the code that only requests reach."""

    def __init__(self, world: SimulatedWorld, folder: Path, pace: Pace) -> None:
        self._world = world
        self._folder = folder
        self._pace = pace
        self._webhook: AdmissionHandler | None = None
        self._preparers: dict[str, Preparer] = {}
        for name in ("cc-1", "cc-2"):
            world.processes[name].make = self._start_controller
        for name in ("alloc-1", "alloc-2"):
            world.processes[name].make = self._start_allocator
        world.add_process(WEBHOOK, self._start_webhook)
        for node, gpus in world.gpus.items():
            world.processes[f"agent-{node}"].make = self._agent_of(gpus)
        world.processes["k-lets"].make = self._start_kubelets
        # All devices are dray's: kube-scheduler allocates none.
        del world.processes["k-allocates"]
        self.services = (*SERVICES, *(f"agent-{node}" for node in world.gpus))

    def roots(self, service: str) -> list[Any]:
        """The objects from which everything that a service keeps can be reached."""
        process = self._world.processes[service].process
        tasks: list[Any] = [] if process is None else list(process.tasks)
        node = service.removeprefix("agent-")
        return [*tasks, *([self._webhook] if service == WEBHOOK else ()), self._preparers.get(node)]

    async def admit(self, pod: Object) -> Object:
        """The pod as the webhook admits it. Raises ValueError if it is denied."""
        assert self._webhook is not None
        metadata = pod["metadata"]
        request = AdmissionRequest(
            uid=metadata["name"], namespace=metadata["namespace"], name=metadata["name"], object=pod
        )
        answer = await self._in_process(
            WEBHOOK, self._webhook.mutate_pod(request, timeout_s=_TIMEOUT_S)
        )
        if not answer.allowed:
            raise ValueError(answer.message)
        made: Object = jsonpatch.apply_patch(pod, list(answer.patch))
        return made

    async def prepare(self, node: str, claims: list[ClaimRef]) -> bool:
        """Let the node's agent prepare the claims; returns whether it did."""
        work = self._preparers[node].prepare(claims)
        answers = await self._in_process(f"agent-{node}", work)
        return not any(isinstance(answer, str) for answer in answers.values())

    async def unprepare(self, node: str, claims: list[ClaimRef]) -> None:
        """Let the node's agent unprepare the claims."""
        await self._in_process(f"agent-{node}", self._preparers[node].unprepare(claims))

    async def _in_process(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        process = self._world.processes[name].process
        assert process is not None
        return await _task_of(process, work)

    def _start_webhook(self, kube: Kube, bus: Bus, name: str) -> RunningLoops:
        cache = FactsCache(bus)
        backlog = Backlog(bus, capacity=10_000, what="pod.requested", clock=VirtualClock())
        self._webhook = AdmissionHandler(
            cache,
            backlog,
            Installation(DRAY_NAMESPACE),
            source=f"/webhook/{name}",
            templates=DerivedTemplates(bus),
        )
        return RunningLoops([cache.run(), backlog.run()])

    def _start_controller(self, kube: Kube, bus: Bus, name: str) -> RunningLoops:
        # Small limits are reached in the first hour.
        streams = dict.fromkeys(("events", "commands", "recordings", "dead"), 8 * MIB)
        logs = Logs(keep_for=self._pace.log_kept_s, trim_every=self._pace.trim_every_s)
        settings = ControllerSettings(
            instance=name, log=LogSettings(), logs=logs, streams=Streams(**streams)
        )
        return controller_with(kube, bus, settings)

    def _start_allocator(self, kube: Kube, bus: Bus, name: str) -> RunningLoops:
        every_s = self._pace.log_kept_s
        return allocator_with(bus, AllocatorOptions(writer=name, checkpoint_interval_s=every_s))

    def _agent_of(self, gpus: SimulatedNodeGpus) -> Any:
        disk, folder = Disk(), self._folder / gpus.node
        folder.mkdir()

        def make(kube: Kube, bus: Bus, name: str) -> RunningLoops:
            agent, running = agent_with(kube, bus, name, gpus, disk)
            prepared = PreparedClaims(
                CheckpointFile(folder / "checkpoint.json", "boot"), CdiFolder(folder / "cdi")
            )
            preparer = self._preparers[gpus.node] = Preparer(
                kube=kube,
                node=gpus.node,
                inventory=agent.inventory,
                prepared_claims=prepared,
                clock=VirtualClock(),
                enforcement_problem=agent.enforcement_problem,
            )
            running.loops.append(_run_preparer(agent, preparer))
            return running

        return make

    def _start_kubelets(self, kube: Kube, bus: Bus, name: str) -> RunningLoops:
        return RunningLoops([_PreparingKubelets(kube, self).run()])


class _PreparingKubelets(PollingKubelets):
    """Kubelets whose driver is the node-agent."""

    def __init__(self, kube: Kube, cluster: DayCluster) -> None:
        super().__init__(kube)
        self._cluster = cluster

    async def prepare(self, pod: Object) -> bool:
        """Whether the node's agent has prepared the pod's claims."""
        return await super().prepare(pod) and await self._cluster.prepare(
            pod["spec"]["nodeName"], await self._claims_of(pod)
        )

    async def unprepare(self, pod: Object) -> None:
        """Let the node's agent unprepare the pod's claims."""
        await self._cluster.unprepare(pod["spec"]["nodeName"], await self._claims_of(pod))

    async def _claims_of(self, pod: Object) -> list[ClaimRef]:
        namespace = pod["metadata"]["namespace"]
        names = [reference.claim for reference in pod_from(pod).claims]
        objects = [await self._kube.get(CLAIMS, name, namespace) for name in names]
        uids = [obj["metadata"]["uid"] for obj in objects]
        return [ClaimRef(namespace, *one) for one in zip(uids, names, strict=True)]


async def _run_preparer(agent: NodeAgent, preparer: Preparer) -> None:
    await preparer.restore()
    await agent.sweep(preparer)


async def _task_of(process: Process, work: Awaitable[T]) -> T:
    """Await in a task of the process."""
    token = CURRENT.set(process)
    try:
        task = asyncio.ensure_future(work)
    finally:
        CURRENT.reset(token)
    return await task
