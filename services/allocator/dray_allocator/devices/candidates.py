"""Candidates: the devices that the search tries."""

from collections.abc import Iterable, Iterator

import msgspec

from dray.api.devices import Device, DeviceId, ResourceSlice
from dray_allocator.devices.pools import ResourcePool

_SLICE, _POOL = ResourceSlice("", "", "", "", 0, 1, ""), ResourcePool("", "")


class Candidate(msgspec.Struct, eq=False, gc=False):
    """A device that the search may take. Read-only."""

    id: DeviceId
    device: Device

    @property
    def part(self) -> ResourceSlice:
        """The slice that publishes it. A card has an empty one, because nobody reads it."""
        return _SLICE

    @property
    def pool(self) -> ResourcePool:
        """The pool of its slice; an empty one for a card."""
        return _POOL


class PooledDevice(Candidate, eq=False, gc=False):
    """A device of a published pool."""

    part: ResourceSlice
    pool: ResourcePool


def candidates_of(pools: Iterable[ResourcePool]) -> Iterator[Candidate]:
    """The devices of ``pools``, in the order in which the search tries them."""
    for pool in pools:
        for part, device in pool.devices():
            yield PooledDevice(DeviceId(pool.driver, pool.name, device.name), device, part, pool)
