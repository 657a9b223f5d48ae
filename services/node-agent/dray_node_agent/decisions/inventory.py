"""Makes a node's ResourceSlices from its GPUs and its published state.

Limits are those of ``resource.k8s.io/v1`` (types.go). Requests consume only the virtual capacities.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dray.api.names import (
    API_GROUP,
    DEFAULT_QOS,
    DRIVER,
    DRIVER_VERSION_LABEL,
    HEALTH_TAINT,
    NUMA_NODE,
    NVLINK_DOMAIN,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
    OWNER_TAINT,
    PCI_BUS_ID,
    PCIE_ROOT,
    PHASE,
    POOL_LABEL,
    RUNNING_PHASE,
    TFLOPS,
    UNHEALTHY_PHASE,
    VIRTUAL_TFLOPS,
    VIRTUAL_VRAM,
    VRAM,
)
from dray.api.pods import Node
from dray.api.quantities import NANO, Quantity, parse_quantity, quantity_of
from dray.kube.ports import SLICES, Object
from dray_node_agent.decisions.gpus import Gpu, GpuSnapshot
from dray_node_agent.decisions.models import GpuModel, model_of

MAX_TEXT_LENGTH = 64
"""``DeviceAttributeMaxValueLength``."""
MAX_LABEL_LENGTH = 63
DEVICES_PER_SLICE = 128
TAINTED_DEVICES_PER_SLICE = 64
"""The limit if any device of the slice has taints."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """The part of a node's published state that its devices depend on. The default: no pool."""

    name: str
    uid: str = ""
    pool: str = ""
    owner: str = OWNER_DRAY
    qos: str = DEFAULT_QOS
    tflops_ratio: str = "1"
    vram_ratio: str = "1"
    assigned_pool: str = ""
    """The pool that the node belongs to, also while nobody allocates there."""

    @classmethod
    def of(cls, node: Node) -> "NodeState":
        """From the claim-controller's fact."""
        return cls(
            node.name,
            node.uid,
            node.pool,
            node.owner,
            node.qos,
            node.tflops_ratio,
            node.vram_ratio,
            node.assigned_pool,
        )


@dataclass(frozen=True, slots=True)
class PublishedGpu:
    """One GPU with the capacities that it publishes."""

    gpu: Gpu
    model: GpuModel
    virtual_tflops: Quantity
    virtual_vram: Quantity

    @property
    def device(self) -> str:
        """Device name: the GPU's uuid as a DNS label."""
        return device_name(self.gpu.uuid)

    @property
    def budget(self) -> dict[str, Quantity]:
        """The consumable capacities."""
        return {VIRTUAL_TFLOPS: self.virtual_tflops, VIRTUAL_VRAM: self.virtual_vram}


@dataclass(frozen=True)
class NodeInventory:
    """The node's GPUs and its state."""

    snapshot: GpuSnapshot
    state: NodeState

    @cached_property
    def published_gpus(self) -> dict[str, PublishedGpu]:
        """The GPUs by device name."""
        return {one.device: one for one in published_gpus(self.snapshot, self.state)}

    @property
    def qos(self) -> str:
        """The node's quality of service."""
        return self.state.qos


def device_name(uuid: str) -> str:
    """The device name of a GPU: its uuid as a DNS label."""
    label = re.sub(r"[^a-z0-9-]", "-", uuid.lower())[:MAX_LABEL_LENGTH].strip("-")
    return label or "gpu"


def published_gpus(snapshot: GpuSnapshot, node: NodeState) -> tuple[PublishedGpu, ...]:
    """All GPUs with their virtual capacities: physical × ratio, rounded down."""
    return tuple(_offer(gpu, node) for gpu in snapshot.gpus)


def unhealthy_devices(snapshot: GpuSnapshot) -> tuple[str, ...]:
    """Names of the devices that must not be allocated, sorted."""
    return tuple(sorted(device_name(gpu.uuid) for gpu in snapshot.gpus if gpu.health_error))


def slices(snapshot: GpuSnapshot, node: NodeState, *, generation: int) -> tuple[Object, ...]:
    """The node's ``resource.k8s.io/v1`` slices; at least one, which may be empty."""
    every = published_gpus(snapshot, node)
    devices = [_device(published, node, every) for published in every]
    tainted = any("taints" in device for device in devices)
    size = TAINTED_DEVICES_PER_SLICE if tainted else DEVICES_PER_SLICE
    parts = [devices[start : start + size] for start in range(0, len(devices), size)] or [[]]
    return tuple(
        _slice(node, snapshot.driver_version, part, index, len(parts), generation)
        for index, part in enumerate(parts)
    )


def slice_name(node: str, index: int) -> str:
    """Name of the ``index``-th slice of ``node``."""
    name = f"tensor-fusion-resource-slice-{node}"
    return name if index == 0 else f"{name}.part-{index}"


def shortened(text: str, longest: int) -> str:
    """``text``, or a shorter form of it with a hash.

    Node names reach 253 characters, attribute values 64, labels 63.
    """
    if len(text) <= longest:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{text[: longest - 11]}-{digest}"


def _offer(gpu: Gpu, node: NodeState) -> PublishedGpu:
    model = model_of(gpu)
    return PublishedGpu(
        gpu,
        model,
        _virtual(quantity_of(model.tflops), node.tflops_ratio),
        _virtual(Quantity(gpu.memory_bytes * NANO, binary=True), node.vram_ratio),
    )


def _virtual(physical: Quantity, ratio: str) -> Quantity:
    """Physical × ratio in whole units; at least 1, the smallest request."""
    units = physical.nano * parse_quantity(ratio).nano // NANO // NANO
    return Quantity(max(units, 1) * NANO, physical.binary)


def _slice(
    node: NodeState,
    driver_version: str,
    devices: list[Object],
    index: int,
    count: int,
    generation: int,
) -> Object:
    version = {DRIVER_VERSION_LABEL: driver_version} if driver_version else {}
    return {
        "apiVersion": SLICES.api_version,
        "kind": SLICES.kind,
        "metadata": {
            "name": slice_name(node.name, index),
            "labels": {
                f"{API_GROUP}/managed-by": shortened(node.name, MAX_LABEL_LENGTH),
                "kubernetes.io/hostname": shortened(node.name, MAX_LABEL_LENGTH),
                # From it the claim-controller restores the node's pool.
                POOL_LABEL: shortened(node.assigned_pool, MAX_LABEL_LENGTH),
                **version,
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": node.name,
                    "uid": node.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "driver": DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": generation, "resourceSliceCount": count},
            "devices": devices,
        },
    }


def _device(published: PublishedGpu, node: NodeState, every: Sequence[PublishedGpu]) -> Object:
    device: Object = {
        "name": published.device,
        "attributes": _attributes(published, node, every),
        "capacity": _capacity(published),
        "allowMultipleAllocations": True,
    }
    if taints := _taints(published, node):
        device["taints"] = taints
    return device


def _attributes(published: PublishedGpu, node: NodeState, every: Sequence[PublishedGpu]) -> Object:
    """The attributes; a node's amounts are strings."""
    texts = {
        "model": published.model.name,
        "pool_name": node.pool,
        "pod_namespace": "",  # the GPU object is cluster-scoped
        "uuid": published.gpu.uuid,
        PHASE: UNHEALTHY_PHASE if published.gpu.health_error else RUNNING_PHASE,
        "used_by": "",  # for foreign owners; claims are in ResourceClaim.status
        "node_name": node.name,
        "qos": node.qos,
        "node_total_tflops": str(quantity_of(sum(one.model.tflops for one in every))),
        "node_total_vram": str(_bytes(sum(one.gpu.memory_bytes for one in every))),
        "node_virtual_tflops": str(_sum([one.virtual_tflops for one in every])),
        "node_virtual_vram": str(_sum([one.virtual_vram for one in every])),
    }
    attributes: Object = {
        name: {"string": shortened(text, MAX_TEXT_LENGTH)} for name, text in texts.items()
    }
    attributes["node_total_gpus"] = {"int": len(every)}
    attributes["node_managed_gpus"] = {"int": len(every)}
    if published.model.estimated:
        attributes["tflops_estimated"] = {"bool": True}
    return attributes | _interconnect_attributes(published.gpu)


def _interconnect_attributes(gpu: Gpu) -> Object:
    """The known attributes of the GPU's NVLink domain, PCIe root and NUMA node."""
    texts = {
        NVLINK_DOMAIN: gpu.nvlink_domain,
        PCIE_ROOT: gpu.pcie_root,
        PCI_BUS_ID: gpu.pci_bus_id,
    }
    found: Object = {
        name: {"string": shortened(text, MAX_TEXT_LENGTH)} for name, text in texts.items() if text
    }
    return found if gpu.numa_node is None else found | {NUMA_NODE: {"int": gpu.numa_node}}


def _capacity(published: PublishedGpu) -> Object:
    physical = {
        TFLOPS: quantity_of(published.model.tflops),
        VRAM: _bytes(published.gpu.memory_bytes),
    }
    readable: Object = {
        name: {
            "value": str(amount),
            "requestPolicy": {"default": "0", "validValues": ["0"]},
        }
        for name, amount in physical.items()
    }
    consumed = {
        name: {
            "value": str(amount),
            "requestPolicy": {"default": str(amount), "validRange": {"min": "1"}},
        }
        for name, amount in published.budget.items()
    }
    return readable | consumed


def _taints(published: PublishedGpu, node: NodeState) -> list[Object]:
    taints = []
    if node.owner != OWNER_KUBE_SCHEDULER:
        taints.append({"key": OWNER_TAINT, "value": OWNER_DRAY, "effect": "NoSchedule"})
    if published.gpu.health_error:
        value = _label_value(published.gpu.health_error)
        taints.append({"key": HEALTH_TAINT, "value": value, "effect": "NoSchedule"})
    return taints


def _label_value(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:MAX_LABEL_LENGTH].strip("-_.")


def _bytes(amount: int) -> Quantity:
    return Quantity(amount * NANO, binary=True)


def _sum(amounts: Sequence[Quantity]) -> Quantity:
    total = Quantity(0, binary=bool(amounts) and amounts[0].binary)
    for amount in amounts:
        total = total + amount
    return total
