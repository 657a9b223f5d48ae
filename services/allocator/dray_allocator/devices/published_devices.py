"""The published devices per node: cards with values computed from them, and caches.

A pool is usable only if all slices of its newest generation are published and no device name is
used twice, as in upstream's ``GatherPools``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

from msgspec.structs import replace

from dray.api.devices import (
    NEWER_FIELDS,
    Capacity,
    Device,
    DeviceId,
    DeviceTaintRule,
    ResourceSlice,
)
from dray.api.equality import strictly_equal
from dray.cel.device import view_of
from dray.cel.view import DeviceView
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.device_taints import tainted, without_owner
from dray_allocator.devices.published_capacity import amount_of, quantities_of
from dray_allocator.devices.table_scope import fields_beyond_table, is_slice_beyond_table

_MAX_SIGNATURES = 256
_MAX_SLICES_CACHED = 20_000
T = TypeVar("T")
K = TypeVar("K")
PoolKey = tuple[str, str]
"""Driver and name."""


@dataclass(frozen=True, slots=True)
class DeviceShape:
    """Values computed from a device's capacities; devices with equal ones share the object."""

    number: int
    """Equal for devices from which every request consumes the same amounts; below 0: unknown."""
    totals: Mapping[str, int]
    """Published capacity in billionths of a unit; 0 if it can't be parsed."""
    fault: str
    """Why the node table never allocates such a device: fields that can't be parsed or that the
    node table does not support; empty if there are none."""


def shape_of(device: Device, number: int = -1) -> DeviceShape:
    """The shape of a device."""
    beyond = (f"has {what}" for what in fields_beyond_table(device))
    fault = ", ".join((*faults_of(device), *beyond))
    return DeviceShape(number, totals_of(device.capacity), fault)


@dataclass(frozen=True, slots=True)
class ReadablePart:
    """A slice with only the devices that can be parsed."""

    slice: ResourceSlice
    unparsable: tuple[tuple[DeviceId, str], ...] = ()
    """The other devices, and the fields that can't be parsed."""


class Card(Candidate, kw_only=True, eq=False, gc=False):
    """A published device that the node table reads, with values computed from it. Read-only."""

    node: str
    shape: DeviceShape
    index: int = 0
    """Its position among the cards of its node."""
    _view: DeviceView | None = None

    @property
    def name(self) -> str:
        """The device ID as text."""
        return str(self.id)

    @property
    def view(self) -> DeviceView:
        """The ``device`` variable of CEL selectors."""
        if self._view is None:
            self._view = view_of(self.id.driver, self.device)
        return self._view


_NOTHING_YET: dict[bytes, tuple[Card, ...]] = {}


@dataclass(slots=True)
class NodeDevices:
    """The cards of one node, in the order of their slices, with caches."""

    cards: tuple[Card, ...] = ()
    eligible: dict[bytes, tuple[Card, ...]] = field(default_factory=lambda: _NOTHING_YET)
    """Per signature of a request: the cards that match and whose taints are tolerated. Written by
    ``cache_eligible`` only: most nodes of a large cluster share one empty dictionary."""

    def cache_eligible(self, signature: bytes, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """Cache the eligible cards; the cache is cleared at its limit."""
        # An empty dictionary may be shared. It is not compared by identity, as states are copied.
        if not 0 < len(self.eligible) < _MAX_SIGNATURES:
            self.eligible = {}
        self.eligible[signature] = cards
        return cards


_EMPTY = NodeDevices()


class PublishedDevices:
    """All slices, and the cards of each node."""

    def __init__(self, drivers: tuple[str, ...]) -> None:
        self._drivers = drivers
        self._slices: dict[str, ResourceSlice] = {}
        self.beyond_table: dict[str, None] = {}
        """The slices with fields that the node table does not support."""
        self._rules: tuple[DeviceTaintRule, ...] = ()
        self._untainted: dict[str, ResourceSlice] = {}
        """The slices to which DeviceTaintRules add taints, as published."""
        self._cached: dict[str, object] = {}
        """Values computed from slices; dropped when the slice changes."""
        # Tuples: there may be 100 000 pools, and a dictionary takes five times the memory.
        self._pools: dict[PoolKey, tuple[str, ...]] = {}
        """By pool, the names of its slices."""
        self._pools_of: dict[str, tuple[PoolKey, ...]] = {}
        self.shared_pools: dict[PoolKey, None] = {}
        """Pools with slices for several nodes: an allocation on one affects others."""
        self._unhealthy: dict[tuple[str, str], tuple[str, ...]] = {}
        self._nodes: dict[str, NodeDevices] = {}
        self.unhealthy_counts: dict[str, int] = {}
        """The number of unhealthy devices per node, for nodes that have some."""
        self.cards: dict[DeviceId, Card] = {}
        """The cards that are published and whose pools are complete."""
        self._capacities: dict[tuple[tuple[str, Capacity], ...], dict[str, Capacity]] = {}
        self._latest: dict[str, Capacity] | None = None
        """The entry of ``_capacities`` that was used last."""
        self._numbers: dict[tuple[int, bool, tuple[str, ...]], int] = {}
        """Numbers of shapes by: identity of the capacities, allowMultipleAllocations, and the
        fields that are not read."""
        self._shapes: list[DeviceShape] = []

    def of(self, node: str) -> NodeDevices:
        """The usable cards of a node."""
        return self._nodes.get(node, _EMPTY)

    def nodes_beyond_table(self) -> frozenset[str]:
        """The nodes with slices that the node table does not support; an empty name: all nodes."""
        return frozenset(self._slices[name].node for name in self.beyond_table)

    def published_for(self, node: str) -> list[ResourceSlice]:
        """The slices of all pools with a slice for this node or for several nodes, sorted by
        name."""
        pools = dict.fromkeys((*self._pools_of.get(node, ()), *self._pools_of.get("", ())))
        found = sorted({name: None for pool in pools for name in self._pools[pool]})
        return [self._slices[name] for name in found]

    def cached(self, name: str, make: Callable[[], T]) -> T:
        """The result of ``make``, cached until the slice changes."""
        known = self._cached.get(name)
        if known is None:
            if len(self._cached) >= _MAX_SLICES_CACHED:
                self._cached.clear()
            known = self._cached[name] = make()
        return cast(T, known)

    def unhealthy(self, node: str, driver: str) -> tuple[str, ...]:
        """Names of the devices that the node-agent reports as unhealthy."""
        return self._unhealthy.get((node, driver), ())

    def put(self, slice_: ResourceSlice) -> tuple[str, ...]:
        """Add or replace a slice; returns the nodes whose devices changed, "" for several nodes."""
        if slice_.driver not in self._drivers:
            return ()
        devices = tuple([self._interned(device) for device in slice_.devices])
        slice_ = replace(slice_, devices=devices)
        if strictly_equal(self._as_published(slice_.name), slice_):
            return ()
        touched = self.drop(slice_.name) if slice_.name in self._slices else ()
        if self._rules:
            published, slice_ = slice_, tainted(slice_, self._rules)
            if published is not slice_:
                self._untainted[slice_.name] = published
        if is_slice_beyond_table(slice_):
            self.beyond_table[slice_.name] = None
        self._slices[slice_.name] = slice_
        pool = (slice_.driver, slice_.pool)
        self._pools[pool] = (*self._pools.get(pool, ()), slice_.name)
        if pool not in self._pools_of.get(slice_.node, ()):
            self._pools_of[slice_.node] = (*self._pools_of.get(slice_.node, ()), pool)
        return _distinct((*touched, *self._rebuild(pool)))

    def taint(self, rules: tuple[DeviceTaintRule, ...]) -> tuple[str, ...]:
        """Replace the DeviceTaintRules; returns the nodes whose devices changed."""
        if rules == self._rules:
            return ()
        self._rules = rules
        touched: list[str] = []
        for name in tuple(self._slices):
            part = self._as_published(name)
            if part is not None and tainted(part, rules) != self._slices[name]:
                touched += (*self.drop(name), *self.put(part))
        return _distinct(touched)

    def _as_published(self, name: str) -> ResourceSlice | None:
        """A slice without the taints of DeviceTaintRules."""
        return self._untainted.get(name) or self._slices.get(name)

    def drop(self, name: str) -> tuple[str, ...]:
        """Remove a slice; returns the nodes whose devices changed."""
        slice_ = self._slices.pop(name, None)
        self.beyond_table.pop(name, None)
        self._untainted.pop(name, None)
        self._cached.pop(name, None)
        if slice_ is None:
            return ()
        pool = (slice_.driver, slice_.pool)
        rest = self._pools[pool] = tuple([one for one in self._pools[pool] if one != name])
        if all(self._slices[one].node != slice_.node for one in rest):
            pools = [one for one in self._pools_of[slice_.node] if one != pool]
            _keep(self._pools_of, slice_.node, tuple(pools))
        self._rebuild_node(slice_.node)
        touched = _distinct((slice_.node, *self._rebuild(pool)))
        _keep(self._pools, pool, rest)
        return touched

    def set_unhealthy(self, node: str, driver: str, devices: tuple[str, ...]) -> bool:
        """Replace the unhealthy devices of a node and driver; whether they changed."""
        before = self._unhealthy.get((node, driver), ())
        _keep(self._unhealthy, (node, driver), devices)
        if before == devices:
            return False
        self._rebuild_node(node)
        return True

    def clear_eligible(self) -> None:
        """Clear the caches of eligible cards: a DeviceClass or the CEL environment changed."""
        for node in self._nodes.values():
            node.eligible = _NOTHING_YET

    def _rebuild(self, pool: PoolKey) -> tuple[str, ...]:
        nodes = _distinct(self._slices[name].node for name in self._pools[pool])
        if len(nodes) > 1 or "" in nodes:
            self.shared_pools[pool] = None
        else:
            self.shared_pools.pop(pool, None)
        for node in nodes:
            self._rebuild_node(node)
        return nodes

    def _rebuild_node(self, node: str) -> None:
        self.unhealthy_counts.pop(node, None)
        for card in self._nodes.pop(node, _EMPTY).cards:
            self.cards.pop(card.id, None)
        if not node:
            return  # The slices of dray's drivers are always for one node.
        cards: list[Card] = []
        unhealthy_count = 0
        for pool in sorted(self._pools_of.get(node, ())):
            unhealthy = self._unhealthy.get((node, pool[0]), ())
            for device in self._devices_of(pool, node):
                if device.name in unhealthy:
                    unhealthy_count += 1
                else:
                    cards.append(self._card(DeviceId(*pool, device.name), device, node, len(cards)))
        if cards:
            self._nodes[node] = NodeDevices(tuple(cards))
        if unhealthy_count:
            self.unhealthy_counts[node] = unhealthy_count
        for card in cards:
            self.cards[card.id] = card

    def _devices_of(self, pool: PoolKey, node: str) -> list[Device]:
        slices = [self._slices[name] for name in sorted(self._pools[pool])]
        newest = max([slice_.generation for slice_ in slices], default=0)
        current = [slice_ for slice_ in slices if slice_.generation == newest]
        named = [device.name for slice_ in current for device in slice_.devices]
        if not current or len(current) != current[0].slice_count or len(named) != len(set(named)):
            return []
        return [one for slice_ in current if slice_.node == node for one in slice_.devices]

    def _interned(self, device: Device) -> Device:
        """The device without dray's own taint, and with interned capacities, which take most of the
        memory of a device."""
        shared = self._latest
        if shared is None or shared != device.capacity:  # Most devices equal the one before.
            items = tuple(sorted(device.capacity.items(), key=lambda item: item[0]))
            shared = self._latest = self._capacities.setdefault(items, device.capacity)
        taints = without_owner(device.taints)
        if shared is device.capacity and taints is device.taints:
            return device
        return replace(device, capacity=shared, taints=taints)

    def _card(self, id_: DeviceId, device: Device, node: str, index: int) -> Card:
        beyond_table = fields_beyond_table(device) if self.beyond_table else ()
        not_read = (*device.unsupported, *beyond_table)
        key = (id(device.capacity), device.allow_multiple_allocations, not_read)
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._shapes):
            self._shapes.append(shape_of(device, number))
        return Card(id_, device, node=node, shape=self._shapes[number], index=index)


def _keep(known: dict[K, tuple[T, ...]], key: K, values: tuple[T, ...]) -> None:
    if values:
        known[key] = values
    else:
        known.pop(key, None)


def _distinct(nodes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(nodes))


def totals_of(capacity: Mapping[str, Capacity]) -> Mapping[str, int]:
    """Published capacity in billionths of a unit; 0 if it can't be parsed."""
    return {key: amount_of(one.value) or 0 for key, one in capacity.items()}


def faults_of(device: Device) -> Iterator[str]:
    """The fields of a device that can't be parsed; such a device is never allocated."""
    for what in device.unsupported:
        if what != NEWER_FIELDS:
            yield f"has {what}"
    for key, one in sorted(device.capacity.items()):
        yield from (f"{key} is {text}" for text in quantities_of(one) if not _is_sound(text))


def readable_part(part: ResourceSlice) -> ReadablePart:
    """A slice without the devices that can't be parsed."""
    faults = {one.name: fault for one in part.devices if (fault := ", ".join(faults_of(one)))}
    if not faults:
        return ReadablePart(part)
    devices = tuple(one for one in part.devices if one.name not in faults)
    unparsable = tuple(
        (DeviceId(part.driver, part.pool, name), fault) for name, fault in faults.items()
    )
    return ReadablePart(replace(part, devices=devices), unparsable)


def _is_sound(text: str) -> bool:
    amount = amount_of(text)
    return amount is not None and amount >= 0
