"""The composition root: assembles the node-agent and runs it."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from dray.api.errors import PermanentError
from dray.api.names import DRAY_NAMESPACE, DRIVER
from dray.bus import jetstream
from dray.bus.payload import payload_problem
from dray.bus.ports import Bus
from dray.bus.topology import NODE_AGENT
from dray.kube import api
from dray.kube.ports import Kube
from dray.messages.inputs import AgentNoted
from dray.recording.journal import Journal
from dray.runtime import lifetime, logs
from dray.runtime.clock import SystemClock
from dray.runtime.health import HealthPages
from dray.telemetry import spans
from dray_node_agent.agent import NodeAgent
from dray_node_agent.decisions.cdi import CONTAINER_CLASS
from dray_node_agent.decisions.gpu_holders import HoldingContainer, gpu_holders, must_list_claims
from dray_node_agent.enforcement import NodeEnforcement
from dray_node_agent.files.agent_locks import AgentLock, one_state_folder
from dray_node_agent.files.atomic_files import remove_unfinished
from dray_node_agent.files.cdi_folder import CdiFolder
from dray_node_agent.files.checkpoint import CheckpointFile, boot_id
from dray_node_agent.files.plugin_records import PluginRecords
from dray_node_agent.files.publication_record import PublicationRecordFile
from dray_node_agent.gpu_metrics import GpuUsageCollector
from dray_node_agent.gpus.detected_gpus import DetectedGpus, load_library
from dray_node_agent.gpus.driver_files import DriverFiles
from dray_node_agent.gpus.reader import GpuReader
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_node_agent.gpus.source import GpuSource, GpusUnavailableError
from dray_node_agent.kubelet.device_plugin import DevicePlugin
from dray_node_agent.kubelet.pod_resources import ContainerFollower, listed_containers
from dray_node_agent.kubelet.prepared_claims import PreparedClaims
from dray_node_agent.kubelet.preparer import CompletedPreparation, Preparer
from dray_node_agent.kubelet.server import KubeletServer
from dray_node_agent.kubelet.sockets import (
    endpoint_socket,
    plugin_dir,
    registration_socket,
    remove_abandoned,
)
from dray_node_agent.metrics import expose, preparation_times
from dray_node_agent.mps_daemons import MpsDaemons
from dray_node_agent.node_pods import NodePods
from dray_node_agent.node_state import NodeFollower, NodeReporter
from dray_node_agent.plugin_containers import PluginContainers, PluginSources
from dray_node_agent.rule_recorder import AgentRuleRecorder
from dray_node_agent.settings import NodeAgentSettings, NodeGroup
from dray_node_agent.slice_publisher import SlicePublisher

SERVICE = "node-agent"


class FolderError(PermanentError):
    """A folder that the agent needs can't be used."""


async def run(settings: NodeAgentSettings) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        ForeignAgentError: an agent with another state folder is here.
        FolderError: a folder can't be used.
    """
    logs.configure(SERVICE, settings.instance, level=settings.log.level, format=settings.log.format)
    spans.configure(SERVICE, settings.instance)
    with prepared_folders(settings.node):
        await _run(settings)


@contextlib.contextmanager
def prepared_folders(node: NodeGroup) -> Iterator[None]:
    """Check the node's folders, and remove what killed agents have left. Raises
    ForeignAgentError, FolderError."""
    own = plugin_dir(node.plugins_dir, DRIVER)
    with contextlib.ExitStack() as stack:
        try:
            is_alone = stack.enter_context(one_state_folder(node.state_dir, own))
            if is_alone:
                remove_unfinished(node.state_dir)
                CdiFolder(node.cdi_dir).remove_unfinished()
                removed = remove_abandoned(node.plugins_dir, node.registry_dir, DRIVER)
                structlog.get_logger().info("folders in order", abandoned_sockets=len(removed))
        except OSError as error:
            raise FolderError(
                f"{error.filename or node.state_dir} can't be used: {error.strerror or error}; the "
                "agent writes into the folders DRAY_NODE__STATE_DIR, DRAY_NODE__PLUGINS_DIR, "
                "DRAY_NODE__REGISTRY_DIR and DRAY_NODE__CDI_DIR"
            ) from error
        yield


async def _run(settings: NodeAgentSettings) -> None:
    bus = await connect_bus(settings, settings.node)
    kube = await api.connect(settings.kube.kubeconfig, user_agent=f"dray-{SERVICE}")
    gpus = open_gpus(settings.node)
    health = HealthPages(settings.health.host, settings.health.port)
    journal = None
    if settings.record:
        journal = Journal(bus, AgentNoted, SystemClock(), instance=settings.node.name)
    loops: dict[str, Any] = assemble(
        settings.node, settings.instance, bus, kube, gpus, health, journal, settings.namespace
    )

    async def export_spans() -> None:
        await asyncio.to_thread(spans.shutdown)

    written = () if journal is None else (journal.flush,)
    close = (*written, bus.close, kube.close, gpus.close, export_spans)
    await lifetime.serve(health=health, close=close, **loops)


async def connect_bus(
    settings: NodeAgentSettings, node: NodeGroup, *, wait_s: float | None = 0.0
) -> jetstream.JetStreamBus:
    """Connect one node's agent to the bus, under the node's identity; the connection may come
    later. ``wait_s``: see ``jetstream.connect``."""
    return await jetstream.connect(
        settings.nats.url,
        name=f"{SERVICE} {node.name}",
        role=NODE_AGENT,
        node=node.name,
        token_file=node.token_file,
        ca_file=settings.nats.ca_file,
        wait_s=wait_s,
    )


def open_gpus(node: NodeGroup) -> GpuReader:
    """The GPUs that the settings describe."""
    if node.board == "simulated":
        health_file = node.health_file or node.state_dir / "unhealthy"
        return GpuReader(
            SimulatedGpus(
                node.name,
                node.model,
                node.count,
                health_file,
                node.stand_in_device,
                node.mig,
                node.load,
            )
        )

    def open_nvml() -> GpuSource:
        from dray_node_agent.gpus.nvml import NvmlGpus  # only nodes with GPUs load NVML

        if node.driver_root is not None:
            try:
                load_library(node.driver_root)
            except OSError as error:
                raise GpusUnavailableError(
                    f"NVML's library below {node.driver_root} can't be loaded: {error}"
                ) from error
        root = node.driver_root or Path("/")
        files = DriverFiles(root, host_root=node.driver_host_root)
        return NvmlGpus(sysfs=node.sysfs, files=files, driver_root=node.driver_root)

    detected = DetectedGpus(open_nvml, node.sysfs / "bus" / "pci" / "devices")
    return GpuReader(detected, deadline_s=node.nvml_timeout)


def assemble(
    node: NodeGroup,
    instance: str,
    bus: Bus,
    kube: Kube,
    gpus: GpuReader,
    health: HealthPages,
    journal: Journal | None = None,
    namespace: str = DRAY_NAMESPACE,
) -> dict[str, lifetime.Loop]:
    """The agent's loops with the given adapters; tests pass fakes. ``namespace``: dray's."""
    process = secrets.token_hex(4)
    recorder = AgentRuleRecorder(journal)
    reporter = NodeReporter(bus, node.name, f"dray/{SERVICE}/{instance}")
    parts = _parts(node, kube, gpus, reporter, recorder, namespace)
    agent = parts.agent
    preparer = _preparer(parts, recorder, preparation_times(health.registry))
    server = _kubelet_server(parts, preparer, process)
    follower = NodeFollower(
        bus, node.name, agent.on_state, agent.on_generation, reporter.repeat, agent.on_server
    )
    _add_health_checks(health, bus, agent, parts.publisher)
    containers = ContainerFollower(
        node.pod_resources,
        every_s=node.usage,
        must_list_claims=lambda: must_list_claims(parts.pods.all(), preparer.claims.values()),
    )
    health.report("pod-resources", lambda: containers.problem or None)
    _expose(health, parts, preparer, containers)
    optional: dict[str, lifetime.Loop] = {} if journal is None else {"journal": journal.run}
    if node.device_plugin:
        optional["device-plugin"] = _device_plugin(parts, preparer, process, health)
    return {
        **optional,
        "gpus": agent.watch_gpus,
        "usage": agent.watch_usage,
        "enforcement": agent.enforce,
        "facts": follower.run,
        "publish": agent.publish,
        "slices": agent.watch_slices,
        "kubelet": partial(agent.serve, preparer, server),
        "pods": parts.pods.run,
        "containers": containers.run,
        "sweep": partial(agent.sweep, preparer),
        "inventory": reporter.report_inventory,
        "events": reporter.report_events,
        "usage-report": partial(reporter.report_usage, lambda: agent.usage),
    }


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of one node's agent, except those that serve the kubelet."""

    node: NodeGroup
    kube: Kube
    pods: NodePods
    prepared_claims: PreparedClaims
    publisher: SlicePublisher
    reporter: NodeReporter
    agent: NodeAgent


def _parts(
    node: NodeGroup,
    kube: Kube,
    gpus: GpuReader,
    reporter: NodeReporter,
    recorder: AgentRuleRecorder,
    namespace: str,
) -> _Parts:
    pods = NodePods(kube, node.name)
    claims = PreparedClaims(
        CheckpointFile(node.state_dir / "checkpoint.json", boot_id()),
        CdiFolder(node.cdi_dir),
        AgentLock(node.state_dir / "claims.lock"),
    )
    daemons = MpsDaemons(
        kube, pods, namespace=namespace, template=node.mps_template, in_use=claims.devices
    )
    record = PublicationRecordFile(node.state_dir / "record.json")
    publisher = SlicePublisher(kube, node.name, record, recorder)
    agent = NodeAgent(
        node=node,
        gpus=gpus,
        publisher=publisher,
        reporter=reporter,
        publishing=AgentLock(node.state_dir / "publisher.lock"),
        enforcement=NodeEnforcement(gpus, daemons),
        claims=lambda: claims.claims.values(),
    )
    claims.on_change = agent.on_claims
    reporter.on_generation = agent.on_generation
    return _Parts(node, kube, pods, claims, publisher, reporter, agent)


def _preparer(
    parts: _Parts, recorder: AgentRuleRecorder, measure: Callable[[CompletedPreparation], None]
) -> Preparer:
    def on_prepared(prepared: CompletedPreparation) -> None:
        measure(prepared)
        parts.reporter.prepared(prepared)

    return Preparer(
        kube=parts.kube,
        node=parts.node.name,
        inventory=parts.agent.inventory,
        pods=parts.pods.get,
        prepared_claims=parts.prepared_claims,
        clock=SystemClock(),
        enforcement_problem=parts.agent.enforcement_problem,
        on_prepared=on_prepared,
        recorder=recorder,
    )


def _kubelet_server(parts: _Parts, preparer: Preparer, process: str) -> KubeletServer:
    node = parts.node
    return KubeletServer(
        preparer,
        driver=DRIVER,
        endpoint=endpoint_socket(node.plugins_dir, DRIVER, process),
        registration=registration_socket(node.registry_dir, DRIVER, process),
        on_registered=parts.agent.on_registered,
        health=parts.agent,
    )


def _device_plugin(
    parts: _Parts, preparer: Preparer, process: str, health: HealthPages
) -> lifetime.Loop:
    node, agent = parts.node, parts.agent
    sources = PluginSources(
        agent.inventory,
        agent.enforcement_problem,
        agent.health_changed,
        parts.prepared_claims.devices,
        partial(listed_containers, node.pod_resources),
    )
    containers = PluginContainers(
        parts.kube,
        parts.pods,
        preparer,
        PluginRecords(node.state_dir / "device-plugin"),
        CdiFolder(node.cdi_dir, CONTAINER_CLASS),
        sources,
    )
    plugin = DevicePlugin(containers, node.device_plugins_dir, process)
    health.check("device-plugin", lambda: plugin.problem or None)
    loops = {"kubelet": plugin.run, "release": containers.release}
    lock = AgentLock(node.state_dir / "device-plugin.lock")
    return partial(agent.serve_device_plugin, loops, lock)


def _expose(
    health: HealthPages, parts: _Parts, preparer: Preparer, containers: ContainerFollower
) -> None:
    """Add the agent's metrics to the page."""
    agent = parts.agent

    def holders() -> dict[str, tuple[HoldingContainer, ...]]:
        inventory = agent.inventory()
        gpus = inventory.published_gpus if inventory else {}
        return gpu_holders(containers.containers, parts.pods.all(), preparer.claims.values(), gpus)

    expose(health.registry, agent, preparer, parts.publisher, parts.reporter)
    health.registry.register(
        GpuUsageCollector(parts.node.name, lambda: agent.snapshot, lambda: agent.usage, holders)
    )


def _add_health_checks(
    health: HealthPages, bus: Bus, agent: NodeAgent, publisher: SlicePublisher
) -> None:
    health.check("bus", lambda: bus.problem)
    health.report("bus-max-payload", lambda: payload_problem(bus.max_payload_bytes))
    health.check("gpus", lambda: agent.gpus_problem or None)
    health.check("slices", lambda: agent.publishing_problem or None)
    health.check("kubelet", lambda: agent.registration or None)
    health.report("api-server", lambda: f"drops {publisher.dropped}" if publisher.dropped else None)
