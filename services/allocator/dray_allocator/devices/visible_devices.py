"""The slices that one node sees, and the use of their devices."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from dray.api.devices import DeviceId, ResourceSlice
from dray_allocator.devices.devices_in_use import DevicesInUse
from dray_allocator.devices.published_devices import PublishedDevices, readable_part
from dray_allocator.devices.usage import UsageLedger
from dray_allocator.devices.versions import SchedulerVersion

Use = str | tuple[tuple[str, int], ...] | None
"""Use of a device: ``WHOLE`` (allocated as a whole), ``UNHEALTHY``, the billionths of each capacity
that its shares consume, or None."""
WHOLE: Final = "whole"
UNHEALTHY: Final = "unhealthy"


@dataclass(frozen=True, slots=True)
class VisibleDevices:
    """The slices for one node, and the use of their devices."""

    slices: tuple[ResourceSlice, ...]
    uses: tuple[tuple[Use, ...], ...]
    """Per slice, the use of its devices, in their order."""
    unparsable: tuple[tuple[DeviceId, str], ...] = ()
    """Devices that are left out because they can't be parsed, and why."""

    @property
    def devices(self) -> int:
        """The number of devices on the slices."""
        return sum(map(len, self.uses))

    def usage(self, version: SchedulerVersion) -> DevicesInUse:
        """The devices in use. An unhealthy device counts as held as a whole; so does a shared one
        without DRAConsumableCapacity."""
        whole: set[DeviceId] = set()
        consumed: dict[DeviceId, dict[str, int]] = {}
        for part, uses in zip(self.slices, self.uses, strict=True):
            for device, use in zip(part.devices, uses, strict=True):
                if use is None:
                    continue
                device_id = DeviceId(part.driver, part.pool, device.name)
                if isinstance(use, str) or not version.consumable_capacity:
                    whole.add(device_id)
                else:
                    consumed[device_id] = dict(use)
        return DevicesInUse(whole, consumed.keys(), consumed)


def visible_devices(
    published: PublishedDevices, device_usage: UsageLedger, node: str
) -> VisibleDevices:
    """The devices that ``node`` sees, in the order in which the drivers list them."""
    parts = [
        published.cached(part.name, partial(readable_part, part))
        for part in published.published_for(node)
    ]
    slices = tuple(one.slice for one in parts)
    unparsable = tuple(fault for one in parts for fault in one.unparsable)
    uses = tuple(tuple(_uses(published, device_usage, part)) for part in slices)
    return VisibleDevices(slices, uses, unparsable)


def _uses(
    published: PublishedDevices, device_usage: UsageLedger, part: ResourceSlice
) -> Iterator[Use]:
    unhealthy = published.unhealthy(part.node, part.driver)
    for device in part.devices:
        use = device_usage.of(DeviceId(part.driver, part.pool, device.name))
        if device.name in unhealthy:
            yield UNHEALTHY
        elif use.whole:
            yield WHOLE
        elif use.shares:
            yield tuple(sorted(entry for entry in use.used.items() if entry[1]))
        else:
            yield None
