"""Candidates: the devices that the search tries."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dray.api.devices import Device, DeviceId, ResourceSlice
from dray_allocator.devices.pools import ResourcePool


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A device with the slice and pool that publish it."""

    id: DeviceId
    device: Device
    part: ResourceSlice
    pool: ResourcePool


def candidates_of(pools: Iterable[ResourcePool]) -> Iterator[Candidate]:
    """The devices of ``pools``, in the order in which the search tries them."""
    for pool in pools:
        for part, device in pool.devices():
            yield Candidate(DeviceId(pool.driver, pool.name, device.name), device, part, pool)
