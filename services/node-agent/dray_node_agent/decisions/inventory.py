"""Makes a node's ResourceSlices from its GPUs and its published state.

Limits are those of ``resource.k8s.io/v1`` (types.go). Requests consume only the virtual capacities.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from dray.api.enforcement import MIG, NOTHING_NAMED, Enforcement
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
from dray.api.placement import BINPACK, LEVELS
from dray.api.pods import Node
from dray.api.quantities import NANO, Quantity, parse_quantity, quantity_of
from dray.kube.ports import SLICES, Object
from dray_node_agent.decisions.gpus import MAX_LABEL_LENGTH, Gpu, GpuSnapshot, device_name
from dray_node_agent.decisions.models import GpuModel, model_of

_MAX_TEXT_LENGTH = 64
"""``DeviceAttributeMaxValueLength``."""
_DEVICES_PER_SLICE = 128
_TAINTED_DEVICES_PER_SLICE = 64
"""The limit if any device of the slice has taints or consumes counters."""
_COUNTER_SETS_PER_SLICE = 8
_INSTANCES = "instances"
"""The counter of a card with MIG instances: each instance takes one, the card takes all."""


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
    """The pool that the node belongs to, even while nobody allocates there."""
    enforcement: Enforcement = NOTHING_NAMED
    unhealthy_effect: str = "NoSchedule"
    unschedulable: bool = False
    """Whether the node is cordoned."""
    device_order: str = ""
    """``binpack``, ``spread``, or empty: the order of indexes."""

    @classmethod
    def of(cls, node: Node, device_order: str = "") -> "NodeState":
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
            node.enforcement,
            node.unhealthy_effect,
            node.unschedulable,
            device_order,
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


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node's GPUs while its slices are made."""

    snapshot: GpuSnapshot
    node: NodeState
    gpus: tuple["PublishedGpu", ...]

    @classmethod
    def of(cls, snapshot: GpuSnapshot, node: NodeState) -> "NodeView":
        """All GPUs of a snapshot."""
        return cls(snapshot, node, _published_gpus(snapshot, node))

    @property
    def cards(self) -> list["PublishedGpu"]:
        """The physical GPUs."""
        return [one for one in self.gpus if not one.gpu.parent_uuid]

    @property
    def offered(self) -> list["PublishedGpu"]:
        """The devices that claims may get; with enforcer ``mig`` only the MIG instances."""
        only_instances = self.node.enforcement.enforcer == MIG
        return [one for one in self.gpus if one.gpu.parent_uuid or not only_instances]

    def instances(self, uuid: str) -> int:
        """How many MIG instances a card has."""
        return sum(one.gpu.parent_uuid == uuid for one in self.gpus)


@dataclass(frozen=True)
class NodeInventory:
    """The node's GPUs and its state."""

    snapshot: GpuSnapshot
    state: NodeState

    @cached_property
    def published_gpus(self) -> dict[str, PublishedGpu]:
        """The GPUs by device name."""
        return {one.device: one for one in _published_gpus(self.snapshot, self.state)}

    @property
    def qos(self) -> str:
        """The node's quality of service."""
        return self.state.qos


def _published_gpus(snapshot: GpuSnapshot, node: NodeState) -> tuple[PublishedGpu, ...]:
    """All GPUs with their virtual capacities: physical × ratio, rounded down."""
    return tuple(_offer(gpu, node) for gpu in snapshot.gpus)


def unhealthy_devices(snapshot: GpuSnapshot) -> tuple[str, ...]:
    """Names of the devices that must not be allocated, sorted."""
    return tuple(sorted(device_name(gpu.uuid) for gpu in snapshot.gpus if gpu.health_error))


def slices(
    snapshot: GpuSnapshot,
    node: NodeState,
    *,
    generation: int,
    joint_counters: bool = False,
    in_use: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Object, ...]:
    """The node's ``resource.k8s.io/v1`` slices; none if it has no device to offer.

    ``in_use``: the devices that claims use, with the part that is taken. ``joint_counters``:
    whether counters are in the slice of their devices, as Kubernetes 1.34 requires; later versions
    require separate slices for them.
    """
    view = NodeView.of(snapshot, node)
    offered = _ordered(view.offered, node.device_order, in_use)
    of_node = _node_attributes(view)
    devices = [_device(published, view, of_node) for published in offered]
    limited = any("taints" in one or "consumesCounters" in one for one in devices)
    size = _TAINTED_DEVICES_PER_SLICE if limited else _DEVICES_PER_SLICE
    parts: list[Object] = [{"devices": part} for part in _parts(devices, size)]
    counters = _counter_sets(view)
    if joint_counters and counters and parts:
        parts[0]["sharedCounters"] = counters[:_COUNTER_SETS_PER_SLICE]
    else:
        parts += [{"sharedCounters": part} for part in _parts(counters, _COUNTER_SETS_PER_SLICE)]
    return tuple(
        _slice(node, snapshot.driver_version, part, index, len(parts), generation)
        for index, part in enumerate(parts)
    )


def _ordered(
    offered: Sequence[PublishedGpu], order: str, in_use: Mapping[str, float]
) -> list[PublishedGpu]:
    """The devices, ordered so that kube-scheduler, which takes the first that fit, comes close to
    ``binpack`` (the fullest first) or ``spread`` (the emptiest first). Equally full devices keep
    their order."""
    if order not in LEVELS:
        return list(offered)
    sign = -1 if order == BINPACK else 1
    return sorted(offered, key=lambda one: sign * in_use.get(one.device, 0.0))


def _parts(items: list[Object], size: int) -> list[list[Object]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _slice_name(node: str, index: int) -> str:
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
    part: Object,
    index: int,
    count: int,
    generation: int,
) -> Object:
    version = {DRIVER_VERSION_LABEL: driver_version} if driver_version else {}
    return {
        "apiVersion": SLICES.api_version,
        "kind": SLICES.kind,
        "metadata": {
            "name": _slice_name(node.name, index),
            "labels": {
                f"{API_GROUP}/managed-by": shortened(node.name, MAX_LABEL_LENGTH),
                "kubernetes.io/hostname": shortened(node.name, MAX_LABEL_LENGTH),
                # The claim-controller restores the node's pool from this label.
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
            **part,
        },
    }


def _counter_sets(view: NodeView) -> list[Object]:
    """One set for each card with MIG instances, so that card and instances exclude each other."""
    return [
        {
            "name": _counter_set(card.device),
            "counters": {_INSTANCES: {"value": str(view.instances(card.gpu.uuid))}},
        }
        for card in view.cards
        if view.instances(card.gpu.uuid)
    ]


def _counter_set(device: str) -> str:
    return f"{device[: MAX_LABEL_LENGTH - len('-mig')]}-mig"


def _consumed_counters(published: PublishedGpu, view: NodeView) -> list[Object]:
    parent = published.gpu.parent_uuid
    amount = 1 if parent else view.instances(published.gpu.uuid)
    if not amount:
        return []
    card = device_name(parent or published.gpu.uuid)
    return [{"counterSet": _counter_set(card), "counters": {_INSTANCES: {"value": str(amount)}}}]


def with_generation(one: Object, generation: int) -> Object:
    """A slice with another generation of its pool."""
    spec = one["spec"]
    return {**one, "spec": {**spec, "pool": {**spec["pool"], "generation": generation}}}


def _device(published: PublishedGpu, view: NodeView, of_node: Object) -> Object:
    device: Object = {
        "name": published.device,
        "attributes": _attributes(published, view.snapshot) | of_node,
        "capacity": _capacity(published),
        "allowMultipleAllocations": True,
    }
    if counters := _consumed_counters(published, view):
        device["consumesCounters"] = counters
    if taints := _taints(published, view.node):
        device["taints"] = taints
    return device


def _node_attributes(view: NodeView) -> Object:
    """The attributes that describe the node, on all its devices. Amounts are strings, and count
    the node's cards."""
    node, cards = view.node, view.cards
    texts = {
        "pool_name": node.pool,
        "node_name": node.name,
        "qos": node.qos,
        "node_total_tflops": str(quantity_of(sum(one.model.tflops for one in cards))),
        "node_total_vram": str(_bytes(sum(one.gpu.memory_bytes for one in cards))),
        "node_virtual_tflops": str(_sum([one.virtual_tflops for one in cards])),
        "node_virtual_vram": str(_sum([one.virtual_vram for one in cards])),
    }
    attributes: Object = {
        name: {"string": shortened(text, _MAX_TEXT_LENGTH)} for name, text in texts.items()
    }
    attributes["node_total_gpus"] = {"int": len(cards)}
    attributes["node_managed_gpus"] = {"int": len(cards)}
    return attributes


def _attributes(published: PublishedGpu, snapshot: GpuSnapshot) -> Object:
    """The attributes that describe one device."""
    texts = {
        "model": published.model.name,
        "pod_namespace": "",  # the GPU object is cluster-scoped
        "uuid": published.gpu.uuid,
        PHASE: UNHEALTHY_PHASE if published.gpu.health_error else RUNNING_PHASE,
        "used_by": published.gpu.used_by,  # claims are in ResourceClaim.status
    }
    attributes: Object = {
        name: {"string": shortened(text, _MAX_TEXT_LENGTH)} for name, text in texts.items()
    }
    if published.model.estimated:
        attributes["tflops_estimated"] = {"bool": True}
    return (
        attributes
        | _interconnect_attributes(published.gpu)
        | _driver_attributes(published.gpu, snapshot)
    )


def _driver_attributes(gpu: Gpu, snapshot: GpuSnapshot) -> Object:
    """The known attributes of product and driver, named as in NVIDIA's own DRA driver."""
    texts = {
        "type": "mig" if gpu.parent_uuid else "gpu",
        "productName": gpu.product,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "parentUUID": gpu.parent_uuid,
        "profile": gpu.mig_profile,
    }
    versions = {
        "cudaComputeCapability": gpu.compute_capability,
        "driverVersion": snapshot.driver_version,
        "cudaDriverVersion": snapshot.cuda_version,
    }
    found: Object = {
        name: {"string": shortened(text, _MAX_TEXT_LENGTH)} for name, text in texts.items() if text
    }
    found |= {
        name: {"version": version}
        for name, text in versions.items()
        if (version := semantic_version(text))
    }
    return found if gpu.ecc is None else found | {"ecc": {"bool": gpu.ecc}}


def semantic_version(text: str) -> str:
    """An NVIDIA version in the form that Kubernetes accepts: three numbers without leading zeros
    (``535.104.05`` becomes ``535.104.5``); empty if ``text`` is not a version."""
    numbers = text.split(".")
    if not 1 <= len(numbers) <= 3 or not all(one.isascii() and one.isdigit() for one in numbers):
        return ""
    return ".".join(str(int(one)) for one in [*numbers, "0", "0"][:3])


def _interconnect_attributes(gpu: Gpu) -> Object:
    """The known attributes of the GPU's NVLink domain, PCIe root and NUMA node."""
    texts = {
        NVLINK_DOMAIN: "" if gpu.parent_uuid else gpu.nvlink_domain,  # not between instances
        PCIE_ROOT: gpu.pcie_root,
        PCI_BUS_ID: gpu.pci_bus_id,
    }
    found: Object = {
        name: {"string": shortened(text, _MAX_TEXT_LENGTH)} for name, text in texts.items() if text
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
        effect = "NoSchedule" if published.gpu.lacks_enforcer else node.unhealthy_effect
        taints.append({"key": HEALTH_TAINT, "value": value, "effect": effect})
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
