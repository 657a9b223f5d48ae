"""The devices that slices publish, per node, and what is cached about them.

A pool of devices counts only when all slices of its newest generation are there and no
name is used twice (``structured.GatherPools``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dray.cel.device import DeviceView, view_of
from dray.domain import names
from dray.domain.devices import AttributeValue, Device, DeviceId, ResourceSlice
from dray_allocator.fit.capacity import amount_of, quantities_of

_SIGNATURES_KEPT = 256


@dataclass(frozen=True)
class Card:
    """A published device with what is computed from it once."""

    id: DeviceId
    device: Device
    node: str
    capacity_shape: int = -1
    """Equal for devices from which every request consumes the same; below 0: not known."""

    @cached_property
    def name(self) -> str:
        """The identity as text."""
        return str(self.id)

    @cached_property
    def totals(self) -> Mapping[str, int]:
        """Published capacity in billionths of a unit; nothing where it can't be read."""
        return {key: amount_of(one.value) or 0 for key, one in self.device.capacity.items()}

    @cached_property
    def fault(self) -> str:
        """Why it is never allocated: what of it can't be read; empty where all can."""
        faults = [f"has {what}" for what in self.device.unsupported]
        for key, one in sorted(self.device.capacity.items()):
            faults += (f"{key} is {text}" for text in quantities_of(one) if not _is_sound(text))
        return ", ".join(faults)

    @cached_property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """Attributes by ``domain/name``."""
        return {
            names.qualified(key, self.id.driver): value
            for key, value in self.device.attributes.items()
        }

    @cached_property
    def view(self) -> DeviceView:
        """What selectors see."""
        return view_of(self.id.driver, self.device)


@dataclass(slots=True)
class NodeDevices:
    """The devices of one node, in the order of their slices, and caches that die with it."""

    cards: tuple[Card, ...] = ()
    unhealthy: int = 0
    eligible: dict[bytes, tuple[Card, ...]] = field(default_factory=dict)
    """Per signature of a request: devices that match and whose taints are tolerated."""
    uses: int = 0
    """Moves with every change of what is used here."""
    load: int = -1
    """In millionths; below 0: to be computed."""
    unfit: dict[bytes, int] = field(default_factory=dict)
    """Per signature of a pod: the ``uses`` at which its requests did not fit."""

    def remember(self, signature: bytes, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """Keep what is eligible, within bounds."""
        if len(self.eligible) >= _SIGNATURES_KEPT:
            self.eligible.clear()
        self.eligible[signature] = cards
        return cards

    def remember_unfit(self, signature: bytes) -> None:
        """Keep that a pod does not fit beside the present use, within bounds."""
        if len(self.unfit) >= _SIGNATURES_KEPT:
            self.unfit.clear()
        self.unfit[signature] = self.uses


EMPTY = NodeDevices()


class Fleet:
    """All slices, as devices per node."""

    def __init__(self, drivers: tuple[str, ...]) -> None:
        self._drivers = drivers
        self._slices: dict[str, ResourceSlice] = {}
        self._pools: dict[tuple[str, str], dict[str, None]] = {}
        self._pools_of: dict[str, dict[tuple[str, str], None]] = {}
        self._unhealthy: dict[tuple[str, str], tuple[str, ...]] = {}
        self._nodes: dict[str, NodeDevices] = {}
        self._cards: dict[DeviceId, Card] = {}
        self._shapes: dict[tuple[object, ...], int] = {}

    def of(self, node: str) -> NodeDevices:
        """The usable devices of a node."""
        return self._nodes.get(node, EMPTY)

    def card(self, device: DeviceId) -> Card | None:
        """A device by identity, if it is published and its pool is complete."""
        return self._cards.get(device)

    def use_changed(self, device: DeviceId) -> None:
        """More or less of a device is used: what was computed from it is stale."""
        card = self._cards.get(device)
        if card is not None:
            node = self._nodes[card.node]
            node.uses += 1
            node.load = -1

    def put(self, slice_: ResourceSlice) -> tuple[str, ...]:
        """Take a slice in; the nodes whose devices changed."""
        if slice_.driver not in self._drivers or self._slices.get(slice_.name) == slice_:
            return ()
        touched = self.drop(slice_.name) if slice_.name in self._slices else ()
        self._slices[slice_.name] = slice_
        pool = (slice_.driver, slice_.pool)
        self._pools.setdefault(pool, {})[slice_.name] = None
        self._pools_of.setdefault(slice_.node, {})[pool] = None
        return _distinct((*touched, *self._rebuild(pool)))

    def drop(self, name: str) -> tuple[str, ...]:
        """Forget a slice; the nodes whose devices changed."""
        slice_ = self._slices.pop(name, None)
        if slice_ is None:
            return ()
        pool = (slice_.driver, slice_.pool)
        del self._pools[pool][name]
        self._rebuild_node(slice_.node)
        return _distinct((slice_.node, *self._rebuild(pool)))

    def set_unhealthy(self, node: str, driver: str, devices: tuple[str, ...]) -> bool:
        """Remove devices whose node-agent says they are ill; whether that changed anything."""
        before = self._unhealthy.get((node, driver), ())
        self._unhealthy[node, driver] = devices
        if before == devices:
            return False
        self._rebuild_node(node)
        return True

    def forget_selected(self) -> None:
        """Drop what is cached about eligibility: a DeviceClass or the language changed."""
        for node in self._nodes.values():
            node.eligible.clear()
            node.unfit.clear()

    def _rebuild(self, pool: tuple[str, str]) -> tuple[str, ...]:
        nodes = _distinct(self._slices[name].node for name in self._pools[pool])
        for node in nodes:
            self._rebuild_node(node)
        return nodes

    def _rebuild_node(self, node: str) -> None:
        for card in self._nodes.pop(node, EMPTY).cards:
            self._cards.pop(card.id, None)
        if not node:
            return  # dray's own slices are always of one node
        pools = tuple(
            pool
            for pool in sorted(self._pools_of.get(node, ()))
            if any(self._slices[name].node == node for name in self._pools[pool])
        )
        published = [card for pool in pools for card in self._cards_of(pool, node)]
        healthy = tuple(card for card in published if not self._is_unhealthy(card))
        self._nodes[node] = NodeDevices(healthy, len(published) - len(healthy))
        self._cards.update((card.id, card) for card in healthy)

    def _cards_of(self, pool: tuple[str, str], node: str) -> list[Card]:
        slices = [self._slices[name] for name in sorted(self._pools[pool])]
        newest = max(slice_.generation for slice_ in slices)
        current = [slice_ for slice_ in slices if slice_.generation == newest]
        named = [device.name for slice_ in current for device in slice_.devices]
        if len(current) != current[0].slice_count or len(named) != len(dict.fromkeys(named)):
            return []
        return [
            Card(DeviceId(*pool, device.name), device, node, self._shape(device))
            for slice_ in current
            if slice_.node == node
            for device in slice_.devices
        ]

    def _shape(self, device: Device) -> int:
        capacity = sorted(device.capacity.items(), key=lambda item: item[0])
        shape = (device.allow_multiple_allocations, *capacity)
        return self._shapes.setdefault(shape, len(self._shapes))

    def _is_unhealthy(self, card: Card) -> bool:
        return card.id.device in self._unhealthy.get((card.node, card.id.driver), ())


def _is_sound(text: str) -> bool:
    amount = amount_of(text)
    return amount is not None and amount >= 0


def _distinct(nodes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(nodes))
