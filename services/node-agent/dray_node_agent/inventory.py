"""What a node offers: a reading of its board and its pool's state in, ResourceSlices out.

Pure. Limits are those of ``resource.k8s.io/v1`` (types.go), capacities and their request
policies those of the protocol: requests consume only the virtual pair.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dray.domain.names import (
    API_GROUP,
    DEFAULT_QOS,
    DRIVER,
    NUMA_NODE,
    NVLINK_DOMAIN,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
    OWNER_TAINT,
    PCI_BUS_ID,
    PCIE_ROOT,
    POOL_LABEL,
    PREFIX,
    TFLOPS,
    VIRTUAL_TFLOPS,
    VIRTUAL_VRAM,
    VRAM,
)
from dray.domain.pods import Node
from dray.domain.quantities import NANO, Quantity, parse_quantity, quantity_of
from dray.kube.ports import SLICES, Object
from dray_node_agent.boards.ports import Card, Reading
from dray_node_agent.models import Model, model_of

LONGEST_TEXT = 64
"""``DeviceAttributeMaxValueLength``."""
LONGEST_LABEL = 63
DEVICES_PER_SLICE = 128
TAINTED_DEVICES_PER_SLICE = 64
"""The limit where any device of the slice has taints."""
HEALTH_TAINT = PREFIX + "unhealthy"
RUNNING = "Running"
UNHEALTHY = "Unknown"
"""Phases as seed 001 §5.2 and its implementation name them; only ``Running`` is selected."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """What of a node's published state shows on its devices. The default: in no pool."""

    name: str
    uid: str = ""
    pool: str = ""
    owner: str = OWNER_DRAY
    qos: str = DEFAULT_QOS
    tflops_ratio: str = "1"
    vram_ratio: str = "1"
    assigned_pool: str = ""
    """The pool that has the node, also while nobody allocates there."""

    @classmethod
    def of(cls, node: Node) -> "NodeState":
        """The part of the claim-controller's fact that matters here."""
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
class Offer:
    """One card with what it offers to claims."""

    card: Card
    model: Model
    virtual_tflops: Quantity
    virtual_vram: Quantity

    @property
    def device(self) -> str:
        """Device name: the card's uuid as a DNS label."""
        return device_name(self.card.uuid)

    @property
    def budget(self) -> dict[str, Quantity]:
        """What claims may consume in sum."""
        return {VIRTUAL_TFLOPS: self.virtual_tflops, VIRTUAL_VRAM: self.virtual_vram}


@dataclass(frozen=True)
class Stock:
    """What claims can get: the node's cards, and its state."""

    reading: Reading
    state: NodeState

    @cached_property
    def offers(self) -> dict[str, Offer]:
        """The cards by device name."""
        return {one.device: one for one in offers(self.reading, self.state)}

    @property
    def qos(self) -> str:
        """The node's quality of service."""
        return self.state.qos


def device_name(uuid: str) -> str:
    """A DNS label made of a card's uuid; the same for the same card for ever."""
    label = re.sub(r"[^a-z0-9-]", "-", uuid.lower())[:LONGEST_LABEL].strip("-")
    return label or "gpu"


def offers(reading: Reading, node: NodeState) -> tuple[Offer, ...]:
    """Every card of the board with its virtual capacities: physical × ratio, floored."""
    return tuple(_offer(card, node) for card in reading.cards)


def unhealthy(reading: Reading) -> tuple[str, ...]:
    """Names of the devices that must not be given out, sorted."""
    return tuple(sorted(device_name(card.uuid) for card in reading.cards if card.trouble))


def slices(reading: Reading, node: NodeState, *, generation: int) -> tuple[Object, ...]:
    """The node's slices in valid ``resource.k8s.io/v1`` form; at least one, perhaps empty."""
    every = offers(reading, node)
    devices = [_device(offer, node, every) for offer in every]
    tainted = any("taints" in device for device in devices)
    size = TAINTED_DEVICES_PER_SLICE if tainted else DEVICES_PER_SLICE
    parts = [devices[start : start + size] for start in range(0, len(devices), size)] or [[]]
    return tuple(
        _slice(node, part, index, len(parts), generation) for index, part in enumerate(parts)
    )


def slice_name(node: str, index: int) -> str:
    """Name of the ``index``-th slice of ``node``."""
    name = f"tensor-fusion-resource-slice-{node}"
    return name if index == 0 else f"{name}.part-{index}"


def shortened(text: str, longest: int) -> str:
    """``text``, or a recognisable and unique shorter form of it.

    Node names reach 253 characters, attribute values 64, labels 63.
    """
    if len(text) <= longest:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{text[: longest - 11]}-{digest}"


def _offer(card: Card, node: NodeState) -> Offer:
    model = model_of(card)
    return Offer(
        card,
        model,
        _virtual(quantity_of(model.tflops), node.tflops_ratio),
        _virtual(Quantity(card.memory_bytes * NANO, binary=True), node.vram_ratio),
    )


def _virtual(physical: Quantity, ratio: str) -> Quantity:
    """Physical × ratio in whole units; at least 1, the least a request may be."""
    units = physical.nano * parse_quantity(ratio).nano // NANO // NANO
    return Quantity(max(units, 1) * NANO, physical.binary)


def _slice(
    node: NodeState, devices: list[Object], index: int, count: int, generation: int
) -> Object:
    return {
        "apiVersion": SLICES.api_version,
        "kind": SLICES.kind,
        "metadata": {
            "name": slice_name(node.name, index),
            "labels": {
                f"{API_GROUP}/managed-by": shortened(node.name, LONGEST_LABEL),
                "kubernetes.io/hostname": shortened(node.name, LONGEST_LABEL),
                # By it the claim-controller knows the node's pool again, whatever it forgot.
                POOL_LABEL: shortened(node.assigned_pool, LONGEST_LABEL),
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


def _device(offer: Offer, node: NodeState, every: Sequence[Offer]) -> Object:
    device: Object = {
        "name": offer.device,
        "attributes": _attributes(offer, node, every),
        "capacity": _capacity(offer),
        "allowMultipleAllocations": True,
    }
    if taints := _taints(offer, node):
        device["taints"] = taints
    return device


def _attributes(offer: Offer, node: NodeState, every: Sequence[Offer]) -> Object:
    """The attributes of seed 001 §5.2; amounts of a node are texts there."""
    texts = {
        "model": offer.model.name,
        "pool_name": node.pool,
        "pod_namespace": "",  # of the GPU object, which is cluster-scoped
        "uuid": offer.card.uuid,
        "phase": UNHEALTHY if offer.card.trouble else RUNNING,
        "used_by": "",  # a foreign owner only; claims are in ResourceClaim.status
        "node_name": node.name,
        "qos": node.qos,
        "node_total_tflops": str(quantity_of(sum(one.model.tflops for one in every))),
        "node_total_vram": str(_bytes(sum(one.card.memory_bytes for one in every))),
        "node_virtual_tflops": str(_sum([one.virtual_tflops for one in every])),
        "node_virtual_vram": str(_sum([one.virtual_vram for one in every])),
    }
    attributes: Object = {
        name: {"string": shortened(text, LONGEST_TEXT)} for name, text in texts.items()
    }
    attributes["node_total_gpus"] = {"int": len(every)}
    attributes["node_managed_gpus"] = {"int": len(every)}
    if offer.model.estimated:
        attributes["tflops_estimated"] = {"bool": True}
    return attributes | _joints(offer.card)


def _joints(card: Card) -> Object:
    """How the card is joined to others, as far as that is known."""
    texts = {
        NVLINK_DOMAIN: card.nvlink_domain,
        PCIE_ROOT: card.pcie_root,
        PCI_BUS_ID: card.pci_bus_id,
    }
    found: Object = {
        name: {"string": shortened(text, LONGEST_TEXT)} for name, text in texts.items() if text
    }
    return found if card.numa_node is None else found | {NUMA_NODE: {"int": card.numa_node}}


def _capacity(offer: Offer) -> Object:
    physical = {
        TFLOPS: quantity_of(offer.model.tflops),
        VRAM: _bytes(offer.card.memory_bytes),
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
        for name, amount in offer.budget.items()
    }
    return readable | consumed


def _taints(offer: Offer, node: NodeState) -> list[Object]:
    taints = []
    if node.owner != OWNER_KUBE_SCHEDULER:
        taints.append({"key": OWNER_TAINT, "value": OWNER_DRAY, "effect": "NoSchedule"})
    if offer.card.trouble:
        value = _label_value(offer.card.trouble)
        taints.append({"key": HEALTH_TAINT, "value": value, "effect": "NoSchedule"})
    return taints


def _label_value(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:LONGEST_LABEL].strip("-_.")


def _bytes(amount: int) -> Quantity:
    return Quantity(amount * NANO, binary=True)


def _sum(amounts: Sequence[Quantity]) -> Quantity:
    total = Quantity(0, binary=bool(amounts) and amounts[0].binary)
    for amount in amounts:
        total = total + amount
    return total
