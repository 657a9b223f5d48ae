"""The state of the cluster's GPUs for people: pools, nodes with their GPUs, and why pods wait."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dray.api.names import GPUPOOL, OWNER_DRAY
from dray.kube.ports import BIND_REQUESTS, PODS, POOLS, Kube, Object
from dray_cli.gpu_inventory import GpuState, read_gpus
from dray_cli.gpu_usage import GpuUses, usage_as_json

Order = Literal["name", "fill", "free", "pods"]
_COUNTS = re.compile(r": \d+ of \d+ ")
_DETAIL = re.compile(r" \([^()]* asked\)")
_UNDECIDED = "no decision yet"


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """A node with its GPUs."""

    name: str
    gpus: tuple[GpuState, ...]

    @property
    def pool(self) -> str:
        """The GPUPool of the node; of its first GPU, while its GPUs differ."""
        return self.gpus[0].pool

    @property
    def fill(self) -> float:
        """The mean fill of its GPUs, from 0 to 1."""
        return mean_fill(self.gpus)

    @property
    def pods(self) -> int:
        """How many pods or other claims hold GPUs of the node."""
        return len(holders_of(self.gpus))

    def as_json(self, usage: GpuUses | None) -> dict[str, Any]:
        """The node as data."""
        known = usage or {}
        return {
            "name": self.name,
            "pool": self.pool,
            "fill": round(self.fill, 4),
            "gpus": [
                gpu.as_json() | usage_as_json(known.get((gpu.node, gpu.uuid))) for gpu in self.gpus
            ],
        }


@dataclass(frozen=True, slots=True)
class PoolGpus:
    """A GPUPool with its GPUs and the pods that wait for them."""

    name: str
    owner: str
    ready: str
    gpus: tuple[GpuState, ...]
    waiting: int

    @property
    def unhealthy(self) -> int:
        """How many of its GPUs are given to no pod, because they are unhealthy."""
        return sum(bool(gpu.trouble) for gpu in self.gpus)

    def as_json(self) -> dict[str, Any]:
        """The pool as data."""
        return {
            "name": self.name,
            "owner": self.owner,
            "ready": self.ready,
            "gpus": len(self.gpus),
            "unhealthy": self.unhealthy,
            "fill": round(mean_fill(self.gpus), 4),
            "waitingPods": self.waiting,
        }


@dataclass(frozen=True, slots=True)
class WaitReason:
    """A reason why pods of a pool wait. A pod may have several."""

    pool: str
    text: str
    pods: tuple[str, ...]
    """As ``namespace/name``."""

    def as_json(self) -> dict[str, Any]:
        """The reason as data."""
        return {"pool": self.pool, "reason": self.text, "pods": list(self.pods)}


@dataclass(frozen=True, slots=True)
class GpuFleet:
    """Everything that ``dray top`` shows."""

    pools: tuple[PoolGpus, ...]
    nodes: tuple[NodeGpus, ...]
    reasons: tuple[WaitReason, ...]
    usage: GpuUses | None = None
    """The use of GPUs; None: it was not asked for."""

    @property
    def gpus(self) -> list[GpuState]:
        """All GPUs, in the order of their nodes."""
        return [gpu for node in self.nodes for gpu in node.gpus]

    @property
    def waiting(self) -> int:
        """How many pods wait."""
        return len({pod for reason in self.reasons for pod in reason.pods})

    def as_json(self) -> dict[str, Any]:
        """The fleet as data."""
        return {
            "pools": [pool.as_json() for pool in self.pools],
            "nodes": [node.as_json(self.usage) for node in self.nodes],
            "waiting": [reason.as_json() for reason in self.reasons],
        }


async def read_fleet(
    kube: Kube, *, pool: str = "", node: str = "", order: Order = "name"
) -> GpuFleet:
    """The fleet, or its part in one GPUPool or on one node. Raises the errors of ``Kube.list``."""
    gpus = await read_gpus(kube, pool=pool, node=node)
    pools = (await kube.list(POOLS)).objects
    pending = (await kube.list(PODS, field_selector="status.phase=Pending")).objects
    requests = (await kube.list(BIND_REQUESTS)).objects
    return fleet_of(gpus, pools, pending, requests, pool=pool, node=node, order=order)


def fleet_of(
    gpus: Sequence[GpuState],
    pools: Iterable[Object],
    pending: Iterable[Object],
    requests: Iterable[Object],
    *,
    pool: str = "",
    node: str = "",
    order: Order = "name",
) -> GpuFleet:
    """The fleet, from its GPUs and Kubernetes objects. For one node, waiting pods are left out."""
    reasons = () if node else wait_reasons(pending, requests, pool)
    by_node: dict[str, list[GpuState]] = {}
    for gpu in gpus:
        by_node.setdefault(gpu.node, []).append(gpu)
    nodes = [NodeGpus(name, tuple(its)) for name, its in by_node.items()]
    return GpuFleet(
        tuple(
            _pool(one, gpus, reasons)
            for one in sorted(pools, key=lambda one: str(one["metadata"]["name"]))
            if pool in ("", one["metadata"]["name"])
            and (not node or any(gpu.pool == one["metadata"]["name"] for gpu in gpus))
        ),
        tuple(sorted(nodes, key=lambda one: (_rank(one, order), one.name))),
        reasons,
    )


def _rank(node: NodeGpus, order: Order) -> float:
    ranks = {"name": 0.0, "fill": -node.fill, "free": node.fill, "pods": -float(node.pods)}
    return ranks[order]


def _pool(pool: Object, gpus: Sequence[GpuState], reasons: Sequence[WaitReason]) -> PoolGpus:
    name = pool["metadata"]["name"]
    status = pool.get("status") or {}
    ready = next(
        (one["status"] for one in status.get("conditions") or () if one.get("type") == "Ready"), ""
    )
    owner = str((pool.get("spec") or {}).get("owner") or OWNER_DRAY)
    its = tuple(gpu for gpu in gpus if gpu.pool == name)
    waiting = {pod for reason in reasons if reason.pool == name for pod in reason.pods}
    return PoolGpus(name, owner, ready, its, len(waiting))


def wait_reasons(
    pending: Iterable[Object], requests: Iterable[Object], pool: str = ""
) -> tuple[WaitReason, ...]:
    """Why pods wait for GPUs of one GPUPool or of all, the most frequent reason first."""
    known = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in requests}
    found: dict[tuple[str, str], list[str]] = {}
    for pod in pending:
        metadata = pod["metadata"]
        its_pool = (metadata.get("annotations") or {}).get(GPUPOOL, "")
        request = known.get((metadata["namespace"], metadata["name"])) or {}
        is_placed = (pod.get("spec") or {}).get("nodeName") or (request.get("spec") or {}).get(
            "selectedNode"
        )
        if not its_pool or is_placed or pool not in ("", its_pool):
            continue
        for text in _reasons_of(request):
            found.setdefault((its_pool, text), []).append(
                f"{metadata['namespace']}/{metadata['name']}"
            )
    reasons = [WaitReason(its, text, tuple(sorted(pods))) for (its, text), pods in found.items()]
    return tuple(sorted(reasons, key=lambda one: (-len(one.pods), one.pool, one.text)))


def _reasons_of(request: Object) -> list[str]:
    """The reasons without amounts and counts, so that equal ones are grouped."""
    explanation = str((request.get("status") or {}).get("explanation") or _UNDECIDED)
    heads = [_COUNTS.split(line)[0] for line in explanation.splitlines() if line.strip()]
    return list(dict.fromkeys(_DETAIL.sub("", head) for head in heads))


def mean_fill(gpus: Sequence[GpuState]) -> float:
    """The mean fill, from 0 to 1."""
    return sum(min(1.0, gpu.fill) for gpu in gpus) / len(gpus) if gpus else 0.0


def holders_of(gpus: Iterable[GpuState]) -> dict[tuple[str, str], list[GpuState]]:
    """The GPUs of each holder, by namespace and pod, or by claim if no pod uses the claim."""
    found: dict[tuple[str, str], list[GpuState]] = {}
    for gpu in gpus:
        for holder in gpu.holders:
            who = holder.pod or f"(claim {holder.claim})"
            found.setdefault((holder.namespace, who), []).append(gpu)
    return found
