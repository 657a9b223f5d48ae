"""The devices that slices publish, per node, and what is cached about them.

A pool of devices counts only when all slices of its newest generation are there and no
name is used twice (``structured.GatherPools``).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from msgspec.structs import replace

from dray.api.devices import Capacity, Device, DeviceId, DeviceTaintRule, ResourceSlice
from dray.api.equality import strictly_equal
from dray_allocator.devices.device_taints import tainted, without_owner
from dray_allocator.devices.links import names_links
from dray_allocator.devices.published_device import Card as Card
from dray_allocator.devices.published_device import DeviceShape, shape_of
from dray_allocator.devices.table_scope import fields_beyond_table, is_slice_beyond_table

_SIGNATURES_KEPT = 256
_SLICES_REMEMBERED = 20_000
T = TypeVar("T")
PoolKey = tuple[str, str]
"""Driver and name."""


_NOTHING_YET: dict[bytes, tuple[Card, ...]] = {}


@dataclass(slots=True)
class NodeDevices:
    """The devices of one node, in the order of their slices, and caches that die with it."""

    cards: tuple[Card, ...] = ()
    eligible: dict[bytes, tuple[Card, ...]] = field(default_factory=lambda: _NOTHING_YET)
    """Per signature of a request: devices that match and whose taints are tolerated. To be
    written by ``remember`` only: most nodes of a large fleet share an empty one."""
    _names_links: bool | None = field(default=None, init=False)

    @property
    def names_links(self) -> bool:
        """Whether a device says how it is connected to others."""
        if self._names_links is None:
            self._names_links = names_links(self.cards)
        return self._names_links

    def remember(self, signature: bytes, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """Keep what is eligible, within bounds."""
        # What is empty may be shared; in a copy of the state it is not the same as here.
        if not 0 < len(self.eligible) < _SIGNATURES_KEPT:
            self.eligible = {}
        self.eligible[signature] = cards
        return cards


EMPTY = NodeDevices()


class PublishedDevices:
    """All slices, as devices per node."""

    def __init__(self, drivers: tuple[str, ...]) -> None:
        self._drivers = drivers
        self._slices: dict[str, ResourceSlice] = {}
        self._beyond_table: dict[str, None] = {}
        """Those of them with fields that the node table does not read."""
        self._rules: tuple[DeviceTaintRule, ...] = ()
        self._untainted: dict[str, ResourceSlice] = {}
        """As published, the slices on which rules put taints."""
        self._remembered: dict[str, object] = {}
        """What others made of slices; forgotten with them."""
        # Tuples, as there may be a hundred thousand of them: a dictionary takes five times as much.
        self._pools: dict[PoolKey, tuple[str, ...]] = {}
        """Names of the slices of each."""
        self._pools_of: dict[str, tuple[PoolKey, ...]] = {}
        self._wide: dict[PoolKey, None] = {}
        """Pools with devices of several nodes, or of no single one."""
        self._unhealthy: dict[tuple[str, str], tuple[str, ...]] = {}
        self._nodes: dict[str, NodeDevices] = {}
        self.ill: dict[str, int] = {}
        """How many unhealthy devices a node has, where it has any."""
        self._cards: dict[DeviceId, Card] = {}
        self._capacities: dict[tuple[tuple[str, Capacity], ...], dict[str, Capacity]] = {}
        self._latest: dict[str, Capacity] | None = None
        """That of ``_capacities`` which was met last."""
        self._numbers: dict[tuple[int, bool, tuple[str, ...]], int] = {}
        """Numbers of shapes by identity of one of ``_capacities``, whether the device is shared,
        and what of it isn't read."""
        self._shapes: list[DeviceShape] = []

    def of(self, node: str) -> NodeDevices:
        """The usable devices of a node."""
        return self._nodes.get(node, EMPTY)

    def card(self, device: DeviceId) -> Card | None:
        """A device by identity, if it is published and its pool is complete."""
        return self._cards.get(device)

    @property
    def spans_nodes(self) -> bool:
        """Whether what claims on one node hold may be missing on another."""
        return bool(self._wide)

    @property
    def says_more(self) -> bool:
        """Whether there are slices with fields that the node table ignores."""
        return bool(self._beyond_table)

    def nodes_that_say_more(self) -> frozenset[str]:
        """Nodes with such slices; "" among them means all nodes."""
        return frozenset(self._slices[name].node for name in self._beyond_table)

    def published_for(self, node: str) -> list[ResourceSlice]:
        """The slices of every pool that has one of this node or of no single node, by name."""
        pools = dict.fromkeys((*self._pools_of.get(node, ()), *self._pools_of.get("", ())))
        found = sorted({name: None for pool in pools for name in self._pools[pool]})
        return [self._slices[name] for name in found]

    def remembered(self, name: str, make: Callable[[], T]) -> T:
        """What ``make`` makes of a slice, made once for as long as the slice is as it is."""
        known = self._remembered.get(name)
        if known is None:
            if len(self._remembered) >= _SLICES_REMEMBERED:
                self._remembered.clear()
            known = self._remembered[name] = make()
        return cast(T, known)

    def unhealthy(self, node: str, driver: str) -> tuple[str, ...]:
        """Names of the devices that the node-agent reports as unhealthy."""
        return self._unhealthy.get((node, driver), ())

    def put(self, slice_: ResourceSlice) -> tuple[str, ...]:
        """Take a slice in; the nodes whose devices changed, "" for those of no single node."""
        if slice_.driver not in self._drivers:
            return ()
        devices = tuple([self._lean(device) for device in slice_.devices])
        slice_ = replace(slice_, devices=devices)
        if strictly_equal(self._known(slice_.name), slice_):
            return ()
        touched = self.drop(slice_.name) if slice_.name in self._slices else ()
        if self._rules:
            published, slice_ = slice_, tainted(slice_, self._rules)
            if published is not slice_:
                self._untainted[slice_.name] = published
        if is_slice_beyond_table(slice_):
            self._beyond_table[slice_.name] = None
        self._slices[slice_.name] = slice_
        pool = (slice_.driver, slice_.pool)
        self._pools[pool] = (*self._pools.get(pool, ()), slice_.name)
        if pool not in self._pools_of.get(slice_.node, ()):
            self._pools_of[slice_.node] = (*self._pools_of.get(slice_.node, ()), pool)
        return _distinct((*touched, *self._rebuild(pool)))

    def taint(self, rules: tuple[DeviceTaintRule, ...]) -> tuple[str, ...]:
        """Taint devices by ``rules``, and no others any more; the nodes whose devices changed."""
        if rules == self._rules:
            return ()
        self._rules = rules
        touched: list[str] = []
        for name in tuple(self._slices):
            part = self._known(name)
            if part is not None and tainted(part, rules) != self._slices[name]:
                touched += (*self.drop(name), *self.put(part))
        return _distinct(touched)

    def _known(self, name: str) -> ResourceSlice | None:
        """A slice as it was published."""
        return self._untainted.get(name) or self._slices.get(name)

    def drop(self, name: str) -> tuple[str, ...]:
        """Forget a slice; the nodes whose devices changed."""
        slice_ = self._slices.pop(name, None)
        self._beyond_table.pop(name, None)
        self._untainted.pop(name, None)
        self._remembered.pop(name, None)
        if slice_ is None:
            return ()
        pool = (slice_.driver, slice_.pool)
        self._pools[pool] = tuple([one for one in self._pools[pool] if one != name])
        self._rebuild_node(slice_.node)
        return _distinct((slice_.node, *self._rebuild(pool)))

    def set_unhealthy(self, node: str, driver: str, devices: tuple[str, ...]) -> bool:
        """Remove unhealthy devices; whether that changed anything."""
        before = self._unhealthy.get((node, driver), ())
        self._unhealthy[node, driver] = devices
        if before == devices:
            return False
        self._rebuild_node(node)
        return True

    def forget_selected(self) -> None:
        """Drop what is cached about eligibility: a DeviceClass or the language changed."""
        for node in self._nodes.values():
            node.eligible = _NOTHING_YET

    def _rebuild(self, pool: PoolKey) -> tuple[str, ...]:
        nodes = _distinct(self._slices[name].node for name in self._pools[pool])
        if len(nodes) > 1 or "" in nodes:
            self._wide[pool] = None
        else:
            self._wide.pop(pool, None)
        for node in nodes:
            self._rebuild_node(node)
        return nodes

    def _rebuild_node(self, node: str) -> None:
        self.ill.pop(node, None)
        for card in self._nodes.pop(node, EMPTY).cards:
            self._cards.pop(card.id, None)
        if not node:
            return  # dray's own slices are always of one node
        cards: list[Card] = []
        ill = 0
        for pool in sorted(self._pools_of.get(node, ())):
            unhealthy = self._unhealthy.get((node, pool[0]), ())
            for device in self._devices_of(pool, node):
                if device.name in unhealthy:
                    ill += 1
                else:
                    cards.append(self._card(DeviceId(*pool, device.name), device, node, len(cards)))
        self._nodes[node] = NodeDevices(tuple(cards))
        if ill:
            self.ill[node] = ill
        for card in cards:
            self._cards[card.id] = card

    def _devices_of(self, pool: PoolKey, node: str) -> list[Device]:
        slices = [self._slices[name] for name in sorted(self._pools[pool])]
        newest = max([slice_.generation for slice_ in slices], default=0)
        current = [slice_ for slice_ in slices if slice_.generation == newest]
        named = [device.name for slice_ in current for device in slice_.devices]
        if not current or len(current) != current[0].slice_count or len(named) != len(set(named)):
            return []
        return [one for slice_ in current if slice_.node == node for one in slice_.devices]

    def _lean(self, device: Device) -> Device:
        """The device without dray's own taint, and with capacities that it has in common with all
        that have equal ones: they are most of what a device takes in memory."""
        shared = self._latest
        if shared is None or shared != device.capacity:  # mostly it is like the one before
            items = tuple(sorted(device.capacity.items(), key=lambda item: item[0]))
            shared = self._latest = self._capacities.setdefault(items, device.capacity)
        taints = without_owner(device.taints)
        if shared is device.capacity and taints is device.taints:
            return device
        return replace(device, capacity=shared, taints=taints)

    def _card(self, id_: DeviceId, device: Device, node: str, index: int) -> Card:
        unread = (*device.unsupported, *fields_beyond_table(device))
        key = (id(device.capacity), device.allow_multiple_allocations, unread)
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._shapes):
            self._shapes.append(shape_of(device))
        return Card(id_, device, node, number, index, self._shapes[number])


def _distinct(nodes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(nodes))
