"""The programs of dray's services on this machine. Pure."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dray_sandbox.access import CLAIM_CONTROLLER, KUBELET, NODE_AGENT, Endpoint
from dray_sandbox.kubelet.timings import KubeletTimings
from dray_sandbox.layout import GPU_RESOURCES, SCHEDULER_NAMES, SimulatedNode, StackOptions
from dray_sandbox.nats_server import NatsAccess
from dray_sandbox.node.specs import service_in_node, stand_in_device
from dray_sandbox.probes import answers
from dray_sandbox.processes import ProcessSpec
from dray_sandbox.tcp_ports import free_port

_STOPS_WITHIN_S = 12.0
"""Services drain in less than ten seconds."""
_READY_WITHIN_S = 120.0
"""Long, because ten processes may start at once on a busy machine."""
_STARTED_IN_S = 0.5
"""How long each node of a process for many nodes may take to start, on a busy machine."""
_NODES_PER_S = 20
"""How many nodes per second a process for many nodes reads again."""
_LEASES_PER_S = 50
"""The most lease renewals per second, over all nodes."""
_PERIODS_S = {"POLL": 1, "USAGE": 5, "RESYNC": 30}
"""Periods after which a node-agent process for few nodes reads again."""
_ORDER = 20
_KUBELET_ORDER = 15
"""A kubelet stops after its plugins."""


@dataclass(frozen=True, slots=True)
class NodeFolders:
    """Folders that a node's kubelet and its plugins share."""

    root: Path

    @property
    def plugins(self) -> Path:
        return self.root / "p"

    @property
    def registry(self) -> Path:
        return self.root / "r"

    @property
    def cdi(self) -> Path:
        return self.root / "cdi"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def unhealthy(self) -> Path:
        """The file that names the unhealthy GPUs of a simulated node."""
        return self.state / "unhealthy"

    @property
    def token(self) -> Path:
        """The node-agent's token for NATS, which the kubelet renews."""
        return self.root / "token"

    @property
    def machine(self) -> Path:
        """The pid file of a real node."""
        return self.root / "machine.pid"

    def make(self) -> None:
        """Create all of them."""
        for folder in (self.plugins, self.registry, self.cdi, self.state):
            folder.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True, slots=True)
class ServicePrograms:
    """The programs of a stack's services."""

    options: StackOptions
    endpoint: Endpoint
    nats: NatsAccess
    nodes: Path
    """Folder with one folder per node."""
    traces: Path
    """Folder with one file of spans per service process."""

    def folders(self, node: str) -> NodeFolders:
        """The node's folders."""
        return NodeFolders(self.nodes / node)

    def webhook(self, certificates: Path, port: int) -> ProcessSpec:
        """The webhook, which serves HTTPS on ``port`` with its own certificates."""
        own = {
            "DRAY_WEBHOOK__HOST": "127.0.0.1",
            "DRAY_WEBHOOK__PORT": str(port),
            "DRAY_WEBHOOK__CERTIFICATE_DIR": str(certificates),
            "DRAY_WEBHOOK__SCHEDULER_NAMES": ",".join(SCHEDULER_NAMES),
            "DRAY_WEBHOOK__GPU_RESOURCES": ",".join(GPU_RESOURCES),
            # On one small machine the claim-controller may answer later than in a cluster, and a
            # pod that is applied together with its pool and template waits for that answer.
            "DRAY_WEBHOOK__LOOKUP_TIMEOUT": "2s",
        }
        if self.options.kubelet == "real":
            own["DRAY_WEBHOOK__DEVICE_PLUGIN"] = "true"
        return self._service("webhook", "dray_webhook", "webhook", own)

    def claim_controllers(self) -> list[ProcessSpec]:
        """One per replica."""
        own = {
            "DRAY_KUBE__KUBECONFIG": str(self.endpoint.kubeconfigs[CLAIM_CONTROLLER]),
            "DRAY_GROUPS__SCHEDULER_NAMES": ",".join(SCHEDULER_NAMES),
        }
        if self.options.control_plane == "sandbox":  # its scheduler allocates nothing
            own["DRAY_OWNER__ALLOCATING_SCHEDULER"] = "false"
        names = _replicas("claim-controller", self.options.claim_controllers)
        return [
            self._service(name, "dray_claim_controller", "claim-controller", own) for name in names
        ]

    def allocators(self) -> list[ProcessSpec]:
        """One per replica."""
        names = _replicas("allocator", self.options.allocators)
        return [self._service(name, "dray_allocator", "allocator", {}) for name in names]

    def node_agents(self) -> list[ProcessSpec]:
        """One per node, or one for all of them."""
        nodes = self.options.nodes
        if self.options.agents_in_one and nodes:
            return [self._agents_of(nodes)]
        return [self.node_agent(node) for node in nodes]

    def kubelet(self) -> ProcessSpec:
        """One process with all nodes' stand-in kubelets."""
        port = free_port()
        capacity = ",".join(f"{key}={value}" for key, value in self.options.node_capacity.items())
        flags = [
            f"--kubeconfig={self.endpoint.kubeconfigs[KUBELET]}",
            f"--capacity={capacity}",
            f"--health-port={port}",
            f"--wipe-after-s={self.options.wipe_slices_after_s:g}",
            f"--log-level={self.options.log_level}",
        ]
        if self.options.control_plane == "real":  # the sandbox asks no kubelet
            flags.append(f"--containers-port={free_port()}")
        else:
            flags.append(f"--renew-every-s={renew_every_s(len(self.options.nodes)):g}")
        for node in self.options.nodes:
            folders = self.folders(node.name)
            paths = (folders.plugins, folders.registry, folders.cdi, folders.token)
            flags.append("--node=" + ":".join((node.name, *map(str, paths))))
            pairs = ",".join(f"{key}={value}" for key, value in node.labels.items())
            flags += [f"--label={node.name}:{pairs}"] if pairs else []
        url = f"http://127.0.0.1:{port}/healthz"
        return ProcessSpec(
            name="kubelet",
            argv=(sys.executable, "-m", "dray_sandbox.kubelet", *flags),
            ready=answers(url),
            health_url=url,
            ready_within_s=_ready_within_s(len(self.options.nodes)),
            order=_KUBELET_ORDER,
        )

    def agent_tokens(self) -> ProcessSpec:
        """The program that renews tokens of node-agents that run as processes of real nodes."""
        kubeconfig = self.endpoint.kubeconfigs[KUBELET]
        flags = (f"--kubeconfig={kubeconfig}", f"--nodes={self.nodes}")
        return ProcessSpec(
            name="agent-tokens",
            argv=(sys.executable, "-m", "dray_sandbox.kubelet.agent_tokens", *flags),
            order=_KUBELET_ORDER,
        )

    def node_agent(self, node: SimulatedNode) -> ProcessSpec:
        """The agent of one node."""
        folders = self.folders(node.name)
        own = {
            "DRAY_KUBE__KUBECONFIG": str(self.endpoint.kubeconfigs[NODE_AGENT]),
            "DRAY_NODE__NAME": node.name,
            "DRAY_NODE__BOARD": "simulated",
            "DRAY_NODE__MODEL": node.model,
            "DRAY_NODE__COUNT": str(node.gpus),
            "DRAY_NODE__TOKEN_FILE": str(folders.token),
        }
        inside: tuple[str, ...] = ()
        if self.options.kubelet == "real":  # the agent's default folders are those of the node
            inside = service_in_node(folders.machine)
            own["DRAY_NODE__STAND_IN_DEVICE"] = stand_in_device()
            own["DRAY_NODE__DEVICE_PLUGIN"] = "true"
        else:
            own |= {
                "DRAY_NODE__PLUGINS_DIR": str(folders.plugins),
                "DRAY_NODE__REGISTRY_DIR": str(folders.registry),
                "DRAY_NODE__CDI_DIR": str(folders.cdi),
                "DRAY_NODE__STATE_DIR": str(folders.state),
            }
        agent = self._service(node_agent_name(node.name), "dray_node_agent", "node-agent", own)
        return replace(agent, argv=(*inside, *agent.argv))

    def _agents_of(self, nodes: Sequence[SimulatedNode]) -> ProcessSpec:
        flags = []
        for node in nodes:
            folders = self.folders(node.name)
            paths = (folders.plugins, folders.registry, folders.cdi, folders.state, folders.token)
            parts = (node.name, node.model, str(node.gpus), *map(str, paths))
            flags.append("--node=" + ":".join(parts))
        own = {
            "DRAY_KUBE__KUBECONFIG": str(self.endpoint.kubeconfigs[NODE_AGENT]),
            "DRAY_NODE__NAME": nodes[0].name,  # each agent's name is in its flag
            "DRAY_NODE__BOARD": "simulated",
        }
        for name, usual_s in _PERIODS_S.items():  # a change is seen at once in any case
            period_s = max(usual_s, len(nodes) // _NODES_PER_S)
            own[f"DRAY_NODE__{name}"] = f"{period_s}s"
        agents = self._service("node-agents", "dray_sandbox.agents", "node-agent", own, flags)
        return replace(agents, ready_within_s=_ready_within_s(len(nodes)))

    def _service(
        self,
        name: str,
        module: str,
        role: str,
        own: Mapping[str, str],
        flags: Sequence[str] = (),
    ) -> ProcessSpec:
        port = free_port()
        environment = {
            "DRAY_INSTANCE": name,
            "DRAY_HEALTH__HOST": "127.0.0.1",
            "DRAY_HEALTH__PORT": str(port),
            "DRAY_LOG__LEVEL": self.options.log_level,
            "DRAY_TRACE_FILE": str(self.traces / f"{name}.jsonl"),
            **self.nats.environment(role),
            **own,
            **self.options.settings,
        }
        url = f"http://127.0.0.1:{port}/readyz"
        return ProcessSpec(
            name=name,
            argv=(sys.executable, "-m", module, *flags),
            environment=environment,
            ready=answers(url),
            health_url=url,
            ready_within_s=_READY_WITHIN_S,
            stop_within_s=_STOPS_WITHIN_S,
            order=_ORDER,
        )


def node_agent_name(node: str) -> str:
    """The name of the process."""
    return f"node-agent-{node}"


def _ready_within_s(nodes: int) -> float:
    """The limit for one process of ``nodes`` nodes."""
    return _READY_WITHIN_S + _STARTED_IN_S * nodes


def renew_every_s(nodes: int) -> float:
    """The period at which each of ``nodes`` nodes renews its lease. It limits the load of the
    sandbox's API server."""
    return max(KubeletTimings().renew_s, nodes / _LEASES_PER_S)


def _replicas(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]
