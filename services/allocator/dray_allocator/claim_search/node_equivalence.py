"""Nodes that are alike to a pod: equal slices, equal use, one verdict."""

from collections.abc import Hashable, Iterable
from itertools import groupby

from dray.api.devices import ResourceSlice
from dray.api.nodes import NodeSelection
from dray.api.pods import Node
from dray_allocator.claim_search.device_equivalence import DeviceEquivalence
from dray_allocator.claim_search.visible_devices import Use, VisibleDevices
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.node_selection import is_reached

Entry = tuple[ResourceSlice, tuple[Use, ...]]


def key_of(node: Node, seen: VisibleDevices, forms: DeviceEquivalence) -> Hashable:
    """Equal for nodes on which the claims that ``forms`` is about fare alike.

    Names of nodes, pools, slices and devices count only where they tell which slice it is that
    several nodes see.
    """
    entries = sorted(zip(seen.slices, seen.uses, strict=True), key=_order)
    pools = tuple(_pool(node, list(pool), forms) for _, pool in groupby(entries, _pool_of))
    return pools, tuple(fault for _, fault in seen.unread)


def _order(entry: Entry) -> tuple[str, str, str]:
    part = entry[0]
    return part.driver, part.pool, part.name


def _pool_of(entry: Entry) -> tuple[str, str]:
    return entry[0].driver, entry[0].pool


def _pool(node: Node, entries: list[Entry], forms: DeviceEquivalence) -> Hashable:
    oldest = min(part.generation for part, _ in entries)
    named = [device.name for part, _ in entries for device in part.devices]
    odd = tuple(named) if len(dict.fromkeys(named)) < len(named) else ()
    parts = tuple(
        _part(node, part, part.generation - oldest, uses, forms) for part, uses in entries
    )
    return odd, parts


def _part(
    node: Node, part: ResourceSlice, generation: int, uses: Iterable[Use], forms: DeviceEquivalence
) -> Hashable:
    if not part.node:  # What else there is to it is the same for all who see it.
        return part.name, generation, _told(node, part)
    return (
        part.node == node.name,
        generation,
        part.slice_count,
        forms.number(repr(part.counter_sets)) if part.counter_sets else -1,
        tuple(forms.of(part, device) for device in part.devices),
        uses,
    )


def _told(node: Node, part: ResourceSlice) -> Hashable:
    """Of what the slice, or each of its devices, says about nodes, the part on this one."""
    if not part.per_device_reach:
        return _is_reached(part.reach, node)
    return tuple(_is_reached(device.reach, node) for device in part.devices)


def _is_reached(reach: NodeSelection, node: Node) -> Hashable:
    try:
        return is_reached(reach, node)
    except AllocationError as error:
        return str(error)
