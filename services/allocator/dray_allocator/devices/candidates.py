"""Candidates: the devices that the search tries."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dray.api.devices import Device, DeviceId, ResourceSlice
from dray_allocator.devices.pools import ResourcePool

_SLICE, _POOL = ResourceSlice("", "", "", "", 0, 1, ""), ResourcePool("", "")


@dataclass(slots=True, eq=False)
class Candidate:
    """A device with the slice and pool that publish it; empty ones for a card, of which the search
    reads neither. Read-only."""

    id: DeviceId
    device: Device
    part: ResourceSlice = _SLICE
    pool: ResourcePool = _POOL


def candidates_of(pools: Iterable[ResourcePool]) -> Iterator[Candidate]:
    """The devices of ``pools``, in the order in which the search tries them."""
    for pool in pools:
        for part, device in pool.devices():
            yield Candidate(DeviceId(pool.driver, pool.name, device.name), device, part, pool)
