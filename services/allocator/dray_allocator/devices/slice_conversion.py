"""Slices of the facts as structured parameters read them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dray.api.devices import DeviceId, ResourceSlice
from dray.api.dra.nodes import Reach
from dray.api.dra.slices import Device, Slice
from dray_allocator.devices.published_device import faults_of, in_full, without_owner


@dataclass(frozen=True, slots=True)
class SlicePart:
    """A slice without what dray keeps others away with."""

    slice: Slice
    unread: tuple[tuple[DeviceId, str], ...] = ()
    """Devices that are left out because something of them can't be read, and what."""


def part_of(known: ResourceSlice, full: Slice | None) -> SlicePart:
    """A slice in full; ``full`` where that is more than is ``known``."""
    unread: tuple[tuple[DeviceId, str], ...] = ()
    if full is None:
        unread = tuple(_unread(known))
        faulty = dict(unread)
        full = Slice(
            known.name,
            known.driver,
            known.pool,
            known.generation,
            known.slice_count,
            Reach(known.node),
            devices=tuple(
                in_full(one)
                for one in known.devices
                if DeviceId(known.driver, known.pool, one.name) not in faulty
            ),
        )
    return SlicePart(replace(full, devices=tuple(map(_without_owner, full.devices))), unread)


def _unread(known: ResourceSlice) -> Iterator[tuple[DeviceId, str]]:
    for device in known.devices:
        fault = ", ".join(faults_of(device))
        if fault:
            yield DeviceId(known.driver, known.pool, device.name), fault


def _without_owner(device: Device) -> Device:
    taints = without_owner(device.taints)
    return device if taints is device.taints else replace(device, taints=taints)
