"""Options and simulated nodes of a local stack."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Literal

from dray.api.errors import InvalidInputError
from dray.api.names import (
    DEFAULT_SCHEDULER_NAMES,
    GPU_RESOURCE,
    POOL_LABEL,
    VOLCANO_SCHEDULER,
)
from dray.bus.payload import RECOMMENDED_BYTES
from dray_sandbox.kubelet.plan import NODE_CAPACITY

ControlPlane = Literal["sandbox", "real"]
KubeletKind = Literal["simulated", "real"]

DEFAULT_MODELS = ("A100", "H100")
DEFAULT_POOLS = ("my-gpu-pool", "production-pool", "default")
"""Pools of the quick-start example, one per node in turn."""
SCHEDULER_NAMES = (*DEFAULT_SCHEDULER_NAMES, VOLCANO_SCHEDULER)
"""Scheduler names of pods that dray schedules. Volcano's is included, because local clusters do not
run Volcano."""
GPU_RESOURCES = (GPU_RESOURCE,)
"""Resources that stand for whole dray GPUs: local clusters have no device plugin except dray's."""
DEFAULT_NODES = 3
DEFAULT_GPUS = 8
MOST_AGENT_PROCESSES = 24
"""The most simulated nodes for which `dray up` starts one node-agent process (60 MB) per node."""
MOST_REAL_NODES = 24
"""Each real node runs a kubelet, containerd, kube-proxy and a node-agent."""


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A node with simulated GPUs; a stand-in or a real kubelet runs it."""

    name: str
    model: str = "A100"
    gpus: int = DEFAULT_GPUS
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StackOptions:
    """Options of a stack."""

    name: str = "default"
    control_plane: ControlPlane = "sandbox"
    kubelet: KubeletKind = "simulated"
    """What runs the nodes. Real kubelets need a real control plane and root."""
    services: bool = True
    """Whether to install dray and to run its services and NATS as processes of this machine."""
    images: tuple[str, ...] = ()
    """Paths of image archives for real kubelets."""
    workloads: bool = True
    """Whether a real control plane runs the controllers of workloads, service accounts and node
    lifecycle. Every node then needs a kubelet."""
    serve: tuple[str, ...] = ()
    """API versions to serve in addition to those that are on by default."""
    feature_gates: tuple[str, ...] = ()
    """Feature gates that are on in every program of a real control plane."""
    nodes: tuple[SimulatedNode, ...] = ()
    node_capacity: Mapping[str, str] = field(default_factory=lambda: dict(NODE_CAPACITY))
    """The capacity of each node."""
    agents_in_one: bool = False
    """Whether one process runs the node-agents of all nodes."""
    allocators: int = 1
    claim_controllers: int = 1
    template_retry: Literal["watch", "backoff"] = "watch"
    """How the sandbox notices a template that is created after its pod: as Kubernetes 1.36 does
    (``watch``) or as 1.34 does (``backoff``)."""
    wipe_slices_after_s: float = 30.0
    """How long a driver may be disconnected from its kubelet before its slices are deleted."""
    sync_interval: str = "always"
    """When NATS syncs writes to the disk."""
    max_payload_bytes: int = RECOMMENDED_BYTES
    """The longest message that NATS accepts."""
    restart: bool = True
    """Whether the supervisor restarts a process that ended by itself; otherwise it ends all."""
    keep: bool = False
    """Whether to continue with the objects, decision logs and nodes of the last run of this name,
    if there was one."""
    log_level: str = "info"
    settings: Mapping[str, str] = field(default_factory=dict)
    """Additional ``DRAY_…`` variables of every service."""


def simulated_nodes(
    count: int,
    *,
    gpus: int = DEFAULT_GPUS,
    models: Sequence[str] = DEFAULT_MODELS,
    pools: Sequence[str] = DEFAULT_POOLS,
    labels: Sequence[str] = (),
) -> tuple[SimulatedNode, ...]:
    """``count`` nodes named sim-1, sim-2 …; models and pools are assigned in turn.

    ``labels`` are ``KEY=VALUE`` for all nodes, or ``NODE:KEY=VALUE`` for one; they override the
    pool's label.

    Raises:
        InvalidInputError: a label has another form, or names a node that does not exist.
    """
    names = [f"sim-{number}" for number in range(1, count + 1)]
    extra = _labels(names, labels)
    assigned = zip(
        names,
        islice(cycle(models), count),
        islice(cycle(pools), count) if pools else [""] * count,
        strict=True,
    )
    return tuple(
        SimulatedNode(name, model, gpus, _pool_label(pool) | extra[name])
        for name, model, pool in assigned
    )


def _pool_label(pool: str) -> dict[str, str]:
    return {POOL_LABEL: pool} if pool else {}


def _labels(names: Sequence[str], labels: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    for text in labels:
        left, equals, value = text.partition("=")
        node, colon, key = left.rpartition(":")
        if not (equals and key):
            raise InvalidInputError(
                f"node label {text!r}: expected KEY=VALUE for all nodes, or NODE:KEY=VALUE"
            )
        if colon and node not in found:
            raise InvalidInputError(
                f"node label {text!r}: there is no node {node!r}; there are {', '.join(names)}"
            )
        for name in [node] if colon else names:
            found[name][key] = value
    return found
