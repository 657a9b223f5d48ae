"""Equivalence classes of nodes for one pod: equal slices with equal use have the same result."""

from collections.abc import Hashable, Iterable
from itertools import groupby

from dray.api.device_links import links_of
from dray.api.devices import ResourceSlice
from dray.api.nodes import NodeSelection
from dray.api.pods import Node
from dray_allocator.devices.device_equivalence import DeviceEquivalence
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.node_selection import is_reached
from dray_allocator.devices.visible_devices import Use, VisibleDevices

_Entry = tuple[ResourceSlice, tuple[Use, ...]]


def node_key(node: Node, visible: VisibleDevices, devices: DeviceEquivalence) -> Hashable:
    """Equal for nodes on which the pod has the same result. ``devices``: the classes for that pod.

    Only the names of slices that several nodes see are part of the key.
    """
    entries = sorted(zip(visible.slices, visible.uses, strict=True), key=_order)
    pools = tuple(_pool(node, list(pool), devices) for _, pool in groupby(entries, _pool_of))
    faults = tuple(fault for _, fault in visible.unparsable)
    links = _links(part for part, _ in entries) if devices.reads_links else ()
    return pools, faults, links


def _order(entry: _Entry) -> tuple[str, str, str]:
    part = entry[0]
    return part.driver, part.pool, part.name


def _pool_of(entry: _Entry) -> tuple[str, str]:
    return entry[0].driver, entry[0].pool


def _links(slices: Iterable[ResourceSlice]) -> Hashable:
    """Which devices are connected: links are numbered, because only their equality matters."""
    numbers: dict[Hashable, int] = {}
    return tuple(
        None if link is None else numbers.setdefault((at, type(link), link), len(numbers))
        for part in slices
        for device in part.devices
        for at, link in enumerate(links_of(part.driver, device.attributes))
    )


def _pool(node: Node, entries: list[_Entry], devices: DeviceEquivalence) -> Hashable:
    oldest = min(part.generation for part, _ in entries)
    device_names = [device.name for part, _ in entries for device in part.devices]
    has_duplicates = len(dict.fromkeys(device_names)) < len(device_names)
    parts = tuple(
        _slice(node, part, part.generation - oldest, uses, devices) for part, uses in entries
    )
    return tuple(device_names) if has_duplicates else (), parts


def _slice(
    node: Node,
    part: ResourceSlice,
    generation: int,
    uses: Iterable[Use],
    devices: DeviceEquivalence,
) -> Hashable:
    if not part.node:  # All nodes that see it see the same content.
        return part.name, generation, _selection(node, part)
    return (
        part.node == node.name,
        generation,
        part.slice_count,
        devices.number(repr(part.counter_sets)) if part.counter_sets else -1,
        tuple(devices.of(part, device) for device in part.devices),
        uses,
    )


def _selection(node: Node, part: ResourceSlice) -> Hashable:
    """Whether the slice, or each of its devices, selects this node."""
    if not part.per_device_reach:
        return _is_reached(part.reach, node)
    return tuple(_is_reached(device.reach, node) for device in part.devices)


def _is_reached(reach: NodeSelection, node: Node) -> Hashable:
    try:
        return is_reached(reach, node)
    except AllocationError as error:
        return str(error)
