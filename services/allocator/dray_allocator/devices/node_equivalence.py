"""Classes of nodes that are equal to a pod: equal slices in equal use, and so one result."""

from collections.abc import Hashable, Iterable
from itertools import groupby

from dray.api.devices import ResourceSlice
from dray.api.nodes import NodeSelection
from dray.api.pods import Node
from dray_allocator.devices.device_equivalence import DeviceEquivalence
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.links import links_of
from dray_allocator.devices.node_selection import is_reached
from dray_allocator.devices.visible_devices import Use, VisibleDevices

_Entry = tuple[ResourceSlice, tuple[Use, ...]]


def node_key(node: Node, visible: VisibleDevices, devices: DeviceEquivalence) -> Hashable:
    """Equal for nodes on which the pod of ``devices`` has the same result.

    Names of nodes, pools, slices and devices count only if they identify a slice that several
    nodes see.
    """
    entries = sorted(zip(visible.slices, visible.uses, strict=True), key=_order)
    pools = tuple(_pool(node, list(pool), devices) for _, pool in groupby(entries, _pool_of))
    faults = tuple(fault for _, fault in visible.unread)
    links = _links(part for part, _ in entries) if devices.reads_links else ()
    return pools, faults, links


def _order(entry: _Entry) -> tuple[str, str, str]:
    part = entry[0]
    return part.driver, part.pool, part.name


def _pool_of(entry: _Entry) -> tuple[str, str]:
    return entry[0].driver, entry[0].pool


def _links(slices: Iterable[ResourceSlice]) -> Hashable:
    """Which devices are connected. The values of links count only by whether they are equal."""
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
    if not part.node:  # Its content is the same for all nodes that see it.
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
