"""The processes of a simulation: dray's services, and stand-ins for Kubernetes' components."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import prometheus_client

from dray.api.errors import DrayError
from dray.bus.ports import Bus
from dray.kube.convert import claim_from, pod_from
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    CLAIMS,
    NODES,
    PODS,
    Changed,
    Deleted,
    Kube,
    Listed,
    NotFoundError,
    Object,
)
from dray.runtime.settings import LogSettings
from dray_allocator.service.replica import Replica
from dray_allocator.service.telemetry import AllocatorMetrics
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.options import AllocatorOptions
from dray_claim_controller.app import Controller
from dray_claim_controller.settings import (
    ControllerSettings,
    ExecutionSettings,
    Logs,
    Owner,
    Publishing,
    Templates,
)
from dray_node_agent.agent import NodeAgent
from dray_node_agent.decisions.gpus import Gpu, GpuSnapshot, GpuUsage, device_name
from dray_node_agent.files.publication_record import PublicationRecord, PublicationRecordFile
from dray_node_agent.gpus.reader import GpuReader
from dray_node_agent.node_state import NodeFollower, NodeReporter
from dray_node_agent.settings import NodeGroup
from dray_node_agent.slice_publisher import SlicePublisher
from dray_sandbox.controllers.claim_controller import ResourceClaimController
from dray_sandbox.scheduler.scheduler import Scheduler
from tools.simulation.cluster import DEDICATED, LIFE, SHARED
from tools.simulation.faulty_adapters import FaultyBus
from tools.simulation.kube_scheduler import DeviceAllocator
from tools.simulation.loop import Process, VirtualLoop

Work = Coroutine[Any, Any, None]
ProcessFactory = Callable[[Kube, Bus, str], "RunningLoops"]
"""Makes the loops of a process that starts, from its connections and its instance name."""

EXCLUSION_S = 10.0
"""How long a rolled-back claim avoids its node: shorter than the default."""

UNUSED_AFTER_S = 8.0
"""How long a derived template may be unused: shorter than the default."""


EXECUTIONS = 4
"""Concurrent executions: fewer than the refused pods, as in a cluster with many refused pods."""

CHECKPOINT_INTERVAL_S = 2.0
LOG_KEPT_S = 3.0
TRIM_EVERY_S = 1.0
"""Logs are trimmed every few seconds, so that every reader begins at a checkpoint now and then."""

DECIDED_BYTES = 2500
"""Small, so that most checkpoints have several parts."""

QUARANTINE_S = 100.0
"""Quarantine of devices that kube-scheduler owned: longer than its longest delay, pause and write
together."""


@dataclass(slots=True)
class RunningLoops:
    """The loops of a started process, and the state that checks read."""

    loops: list[Work]
    allocator: AllocatorState | None = None


class VirtualClock:
    """The running loop's time as ``dray.runtime.clock.Clock``."""

    def now_unix_s(self) -> float:
        """Seconds since 1970 UTC by the clock of the process' host."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.wall_unix_s()

    def monotonic_s(self) -> float:
        """Seconds since the simulation began."""
        return asyncio.get_running_loop().time()

    async def sleep(self, delay_s: float) -> None:
        """Wait."""
        await asyncio.sleep(delay_s)


def claim_controller(kube: Kube, bus: Bus, name: str) -> RunningLoops:
    """The claim-controller, with short times."""
    settings = ControllerSettings(
        instance=name,
        log=LogSettings(),
        execution=ExecutionSettings(concurrency=EXECUTIONS),
        publishing=Publishing(report_every=1.0, status_every=1.0),
        templates=Templates(unused_after=UNUSED_AFTER_S),
        owner=Owner(quarantine=QUARANTINE_S),
        logs=Logs(keep_for=LOG_KEPT_S, trim_every=TRIM_EVERY_S),
    )
    return controller_with(kube, bus, settings)


def controller_with(kube: Kube, bus: Bus, settings: ControllerSettings) -> RunningLoops:
    """A claim-controller with these settings."""
    controller = Controller(bus, kube, settings, clock=VirtualClock())
    return RunningLoops(
        [controller.watch(), controller.stand(), controller.look_up(), controller.readings.run()]
    )


def allocator(kube: Kube, bus: Bus, name: str) -> RunningLoops:
    """One allocator replica, with short times."""
    options = AllocatorOptions(
        writer=name,
        exclusion_s=EXCLUSION_S,
        checkpoint_interval_s=CHECKPOINT_INTERVAL_S,
        decided_bytes=DECIDED_BYTES,
    )
    return allocator_with(bus, options)


def allocator_with(bus: Bus, options: AllocatorOptions) -> RunningLoops:
    """An allocator replica with these options; it has no connection to Kubernetes."""
    state = AllocatorState(options)
    replica = Replica(bus, state, AllocatorMetrics(state, prometheus_client.CollectorRegistry()))
    return RunningLoops([replica.run()], state)


def claim_generator(*, watch_templates: bool) -> ProcessFactory:
    """kube-controller-manager's resourceclaim-controller; it watches templates since 1.36."""

    def make(kube: Kube, bus: Bus, name: str) -> RunningLoops:
        return RunningLoops([ResourceClaimController(kube, watch_templates=watch_templates).run()])

    return make


def scheduler(kube: Kube, bus: Bus, name: str) -> RunningLoops:
    """kube-scheduler."""
    return RunningLoops([Scheduler(kube).run()])


def allocating_scheduler(draw: random.Random) -> ProcessFactory:
    """kube-scheduler's allocation of devices; ``draw`` delays its writes."""

    def make(kube: Kube, bus: Bus, name: str) -> RunningLoops:
        return RunningLoops([DeviceAllocator(kube, draw).run()])

    return make


class Disk(PublicationRecordFile):
    """A node's disk, which keeps its content over restarts."""

    def __init__(self) -> None:
        super().__init__(Path("unused"))
        self._record = PublicationRecord()

    def load(self) -> PublicationRecord:
        """See ``PublicationRecordFile.load``."""
        return self._record

    def save(self, record: PublicationRecord) -> None:
        """See ``PublicationRecordFile.save``."""
        self._record = record


@dataclass(slots=True)
class SimulatedNodeGpus:
    """A node's GPUs, which can become unhealthy."""

    node: str
    count: int
    unhealthy: dict[int, None] = field(default_factory=dict)

    def read(self) -> GpuSnapshot:
        """See ``dray_node_agent.gpus.source.GpuSource``."""
        return GpuSnapshot(tuple(self._gpu(index) for index in range(self.count)), "550.0")

    def set_time_slice(self, uuid: str, number: int) -> None:
        """Nothing runs on them."""

    def listen(self, on_event: Callable[[], None]) -> None:
        """See ``dray_node_agent.gpus.source.GpuSource``."""

    def read_usage(self) -> tuple[GpuUsage, ...]:
        """See ``dray_node_agent.gpus.source.GpuSource``."""
        return ()

    def close(self) -> None:
        """See ``dray_node_agent.gpus.source.GpuSource``."""

    def unhealthy_devices(self) -> list[str]:
        """Device names of the unhealthy GPUs."""
        return [device_name(self._gpu(index).uuid) for index in self.unhealthy]

    def _gpu(self, index: int) -> Gpu:
        health_error = "xid-79" if index in self.unhealthy else ""
        gpu = Gpu(f"GPU-{self.node}-{index}", "NVIDIA A100-SXM4-80GB", 80 * 2**30)
        return msgspec.structs.replace(gpu, health_error=health_error)


def node_agent(node_gpus: SimulatedNodeGpus, disk: Disk) -> ProcessFactory:
    """The node-agent without its gRPC server: it publishes GPUs and their health."""

    def make(kube: Kube, bus: Bus, name: str) -> RunningLoops:
        return agent_with(kube, bus, name, node_gpus, disk)[1]

    return make


def agent_with(
    kube: Kube, bus: Bus, name: str, node_gpus: SimulatedNodeGpus, disk: Disk
) -> tuple[NodeAgent, RunningLoops]:
    """A node-agent without its gRPC server, and its loops."""
    group = NodeGroup(name=node_gpus.node, poll=1.0)
    reporter = NodeReporter(bus, node_gpus.node, f"/node-agent/{name}")
    publisher = SlicePublisher(kube, node_gpus.node, disk)
    gpus = GpuReader(node_gpus)
    agent = NodeAgent(node=group, gpus=gpus, publisher=publisher, reporter=reporter)
    agent.on_registered("")
    reporter.on_generation = agent.on_generation
    follower = NodeFollower(
        bus, node_gpus.node, agent.on_state, agent.on_generation, reporter.repeat
    )
    return agent, RunningLoops(
        [
            agent.watch_gpus(),
            agent.publish(),
            agent.watch_slices(),
            follower.run(),
            reporter.report_inventory(),
            reporter.report_events(),
        ]
    )


def kubelets(kube: Kube, bus: Bus, name: str) -> RunningLoops:
    """All nodes' kubelets: they start bound pods whose claims are reserved, end and delete them."""
    return RunningLoops([PollingKubelets(kube).run()])


def garbage_collector(server: MemoryKube) -> ProcessFactory:
    """kube-controller-manager's garbage collector and its pod garbage collector."""

    def make(kube: Kube, bus: Bus, name: str) -> RunningLoops:
        return RunningLoops([_collect(server)])

    return make


async def _collect(server: MemoryKube) -> None:
    while True:
        server.collect_garbage()
        for (namespace, name), pod in list(server.store.of(PODS).items()):
            node = pod["spec"].get("nodeName")
            if node and ("", node) not in server.store.of(NODES):
                await server.delete(PODS, name, namespace, grace_period_s=0)
        await asyncio.sleep(0.7)


class PollingKubelets:
    """All nodes' kubelets. For them, a claim is prepared if it is allocated and reserved."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._workers: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Run pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            async for event in self._kube.watch(PODS):
                match event:
                    case Listed(objects):
                        for obj in objects:
                            self._handle(obj, group)
                    case Changed(obj):
                        self._handle(obj, group)
                    case Deleted(obj):
                        continue

    def _handle(self, obj: Object, group: asyncio.TaskGroup) -> None:
        uid = obj["metadata"]["uid"]
        known = self._workers.get(uid)
        if obj["spec"].get("nodeName") and (known is None or known.done()):
            worker = self._workers[uid] = group.create_task(self._work(obj))
            worker.add_done_callback(lambda ended: self._forget(uid, ended))

    def _forget(self, uid: str, worker: asyncio.Task[None]) -> None:
        if self._workers.get(uid) is worker:
            del self._workers[uid]

    async def _work(self, seen: Object) -> None:
        name, namespace = seen["metadata"]["name"], seen["metadata"]["namespace"]
        while True:
            try:
                pod = await self._kube.get(PODS, name, namespace)
                if pod["metadata"]["uid"] != seen["metadata"]["uid"]:
                    return
                await self._step(pod)
            except NotFoundError:
                return
            except DrayError:
                pass
            await asyncio.sleep(2.0)

    async def _step(self, pod: Object) -> None:
        metadata, phase = pod["metadata"], pod["status"].get("phase")
        if metadata.get("deletionTimestamp"):
            await self._kube.delete(
                PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace_period_s=0
            )
        elif phase == "Pending":
            if await self.prepare(pod):
                await self._write_status(pod, {"phase": "Running", "startTime": self._now()})
        elif phase == "Running":
            life_s = (metadata.get("annotations") or {}).get(LIFE)
            began_s = float(pod["status"]["startTime"])
            if life_s is not None and float(self._now()) - began_s > float(life_s):
                await self._write_status(pod, {"phase": "Succeeded"})
                await self.unprepare(pod)

    async def unprepare(self, pod: Object) -> None:
        """Called once its containers have ended."""

    async def prepare(self, pod: Object) -> bool:
        """Whether all claims of the pod are prepared."""
        for reference in pod_from(pod).claims:
            if not reference.claim:
                return False
            obj = await self._kube.get(CLAIMS, reference.claim, pod["metadata"]["namespace"])
            claim = claim_from(obj)
            here = claim.allocation is not None and claim.allocation.node == pod["spec"]["nodeName"]
            if not here or pod["metadata"]["uid"] not in claim.reserved_for:
                return False
        return True

    async def _write_status(self, pod: Object, status: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        await self._kube.patch(
            PODS, metadata["name"], patch, metadata["namespace"], subresource="status"
        )

    @staticmethod
    def _now() -> str:
        return f"{asyncio.get_running_loop().time():.3f}"


POOL_OF_NODE = {"n1": DEDICATED, "n2": DEDICATED, "n3": SHARED, "n4": SHARED}
GPUS_PER_NODE = 2
DRAY_PROCESSES = ("cc-1", "cc-2", "alloc-1", "alloc-2", *(f"agent-{n}" for n in POOL_OF_NODE))


@dataclass(slots=True)
class SimulatedProcess:
    """A process over all its restarts."""

    name: str
    make: ProcessFactory
    process: Process | None = None
    running: RunningLoops | None = None
    bus: FaultyBus | None = None
    kube: Any = None
    lives: int = 0
    keeps_name: bool = True


def all_processes(
    seed: int, draw: random.Random, gpus: Mapping[str, SimulatedNodeGpus], kube: MemoryKube
) -> dict[str, SimulatedProcess]:
    """All processes by name, not started; the seed determines their options."""
    lives = {
        "cc-1": claim_controller,
        "cc-2": claim_controller,
        "alloc-1": allocator,
        "alloc-2": allocator,
        **{f"agent-{n}": node_agent(b, Disk()) for n, b in gpus.items()},
        "k-claims": claim_generator(watch_templates=draw.random() < 0.7),
        "k-scheduler": scheduler,
        "k-allocates": allocating_scheduler(random.Random(f"{seed}-allocates")),
        "k-lets": kubelets,
        "k-garbage": garbage_collector(kube),
    }
    return {
        name: SimulatedProcess(name, make, keeps_name=draw.random() < 0.5)
        for name, make in lives.items()
    }
