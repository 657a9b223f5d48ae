"""How each of dray's services is started on this machine. Pure: settings in, programs out."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dray_sandbox.access import CLAIM_CONTROLLER, KUBELET, NODE_AGENT, Endpoint
from dray_sandbox.layout import SimulatedNode, StackOptions
from dray_sandbox.nats_server import NatsAccess
from dray_sandbox.paths import free_port
from dray_sandbox.probes import answers
from dray_sandbox.processes import ProcessSpec

_STOPS_WITHIN_S = 12.0
"""Services drain in less than ten seconds."""
_READY_WITHIN_S = 120.0
"""Ten processes that import at once on a busy machine take their time."""
_ORDER = 20
_KUBELET_ORDER = 15
"""A kubelet outlives its plugins, as it does on a node."""


@dataclass(frozen=True, slots=True)
class NodeFolders:
    """The folders a node shares between its kubelet and its plugins."""

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
    def token(self) -> Path:
        """The node-agent's token for NATS, which the kubelet renews."""
        return self.root / "token"

    def make(self) -> None:
        """Create all of them."""
        for folder in (self.plugins, self.registry, self.cdi, self.state):
            folder.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True, slots=True)
class Wiring:
    """What every service of a stack is told."""

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
        """The webhook, serving HTTPS on ``port`` with certificates of its own."""
        own = {
            "DRAY_WEBHOOK__HOST": "127.0.0.1",
            "DRAY_WEBHOOK__PORT": str(port),
            "DRAY_WEBHOOK__CERTIFICATE_DIR": str(certificates),
            # A whole cluster on one small machine: the claim-controller's answer may take longer
            # than a cluster's would, and a pod applied with its pool and template waits for it.
            "DRAY_WEBHOOK__LOOKUP_TIMEOUT": "2s",
        }
        return self._service("webhook", "dray_webhook", "webhook", own)

    def claim_controllers(self) -> list[ProcessSpec]:
        """As many replicas as the options say."""
        own = {"DRAY_KUBE__KUBECONFIG": str(self.endpoint.kubeconfigs[CLAIM_CONTROLLER])}
        if self.options.control_plane == "sandbox":  # whose scheduler allocates nothing
            own["DRAY_OWNER__ALLOCATING_SCHEDULER"] = "false"
        names = _replicas("claim-controller", self.options.claim_controllers)
        return [
            self._service(name, "dray_claim_controller", "claim-controller", own) for name in names
        ]

    def allocators(self) -> list[ProcessSpec]:
        """As many replicas as the options say."""
        names = _replicas("allocator", self.options.allocators)
        return [self._service(name, "dray_allocator", "allocator", {}) for name in names]

    def node_agents(self) -> list[ProcessSpec]:
        """One per node, or one for all of them."""
        nodes = self.options.nodes
        if self.options.agents_in_one and nodes:
            return [self._agents_of(nodes)]
        return [self._node_agent(node) for node in nodes]

    def kubelet(self) -> ProcessSpec:
        """One process that plays the kubelets of all nodes."""
        port = free_port()
        capacity = ",".join(f"{key}={value}" for key, value in self.options.node_capacity.items())
        flags = [
            f"--kubeconfig={self.endpoint.kubeconfigs[KUBELET]}",
            f"--capacity={capacity}",
            f"--health-port={port}",
            f"--wipe-after-s={self.options.wipe_slices_after_s:g}",
            f"--log-level={self.options.log_level}",
        ]
        for node in self.options.nodes:
            folders = self.folders(node.name)
            paths = (folders.plugins, folders.registry, folders.cdi, folders.token)
            flags.append("--node=" + ":".join((node.name, *map(str, paths))))
            pairs = ",".join(f"{key}={value}" for key, value in node.labels.items())
            flags += [f"--label={node.name}:{pairs}"] if pairs else []
        return ProcessSpec(
            name="kubelet",
            argv=(sys.executable, "-m", "dray_sandbox.kubelet", *flags),
            ready=answers(f"http://127.0.0.1:{port}/healthz"),
            ready_within_s=_READY_WITHIN_S,
            order=_KUBELET_ORDER,
        )

    def _node_agent(self, node: SimulatedNode) -> ProcessSpec:
        folders = self.folders(node.name)
        own = {
            "DRAY_KUBE__KUBECONFIG": str(self.endpoint.kubeconfigs[NODE_AGENT]),
            "DRAY_NODE__NAME": node.name,
            "DRAY_NODE__BOARD": "simulated",
            "DRAY_NODE__MODEL": node.model,
            "DRAY_NODE__COUNT": str(node.gpus),
            "DRAY_NODE__PLUGINS_DIR": str(folders.plugins),
            "DRAY_NODE__REGISTRY_DIR": str(folders.registry),
            "DRAY_NODE__CDI_DIR": str(folders.cdi),
            "DRAY_NODE__STATE_DIR": str(folders.state),
            "DRAY_NODE__TOKEN_FILE": str(folders.token),
        }
        return self._service(f"node-agent-{node.name}", "dray_node_agent", "node-agent", own)

    def _agents_of(self, nodes: Sequence[SimulatedNode]) -> ProcessSpec:
        flags = []
        for node in nodes:
            folders = self.folders(node.name)
            places = (
                folders.plugins,
                folders.registry,
                folders.cdi,
                folders.state,
                folders.token,
            )
            flags.append(
                "--node=" + ":".join((node.name, node.model, str(node.gpus), *map(str, places)))
            )
        own = {
            "DRAY_KUBE__KUBECONFIG": str(self.endpoint.kubeconfigs[NODE_AGENT]),
            "DRAY_NODE__NAME": nodes[0].name,  # each gets its own by its flag
            "DRAY_NODE__BOARD": "simulated",
        }
        return self._service("node-agents", "dray_sandbox.agents", "node-agent", own, flags)

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
        return ProcessSpec(
            name=name,
            argv=(sys.executable, "-m", module, *flags),
            environment=environment,
            ready=answers(f"http://127.0.0.1:{port}/readyz"),
            ready_within_s=_READY_WITHIN_S,
            stop_within_s=_STOPS_WITHIN_S,
            order=_ORDER,
        )


def _replicas(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]
