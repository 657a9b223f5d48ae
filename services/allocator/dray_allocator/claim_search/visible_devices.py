"""What one node sees: the slices that concern it, and who holds their devices."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from dray.api.devices import Capacity, Device, DeviceId, ResourceSlice
from dray_allocator.devices.device_usage import DeviceUse
from dray_allocator.devices.published_capacity import amount_of
from dray_allocator.devices.published_device import readable_part
from dray_allocator.devices.usage import Usage
from dray_allocator.devices.versions import SchedulerVersion
from dray_allocator.nodes.load import FULL
from dray_allocator.state.state import AllocatorState

Rate = Callable[[ResourceSlice, Device], tuple[object, ...]]
"""What a device of a slice is worth, as it is now; the lowest is tried first."""
Use = str | tuple[tuple[str, int], ...] | None
"""Of a device: ``HELD`` as a whole, ``ILL``, what its shares take in billionths, or nothing."""
HELD: Final = "held"
ILL: Final = "ill"


@dataclass(frozen=True, slots=True)
class VisibleDevices:
    """The slices for one node, and the use of their devices."""

    slices: tuple[ResourceSlice, ...]
    uses: tuple[tuple[Use, ...], ...]
    """Of the devices of each slice, in their order."""
    unread: tuple[tuple[DeviceId, str], ...] = ()
    """Devices that are left out because something of them can't be read, and what."""

    @property
    def devices(self) -> int:
        """How many there are on the slices."""
        return sum(map(len, self.uses))

    def usage(self, rules: SchedulerVersion) -> Usage:
        """What is in use of the devices; an unhealthy one is held, and so does one that is shared
        where that is not known."""
        whole: set[DeviceId] = set()
        consumed: dict[DeviceId, dict[str, int]] = {}
        for part, uses in zip(self.slices, self.uses, strict=True):
            for device, use in zip(part.devices, uses, strict=True):
                if use is None:
                    continue
                named = DeviceId(part.driver, part.pool, device.name)
                if isinstance(use, str) or not rules.consumable_capacity:
                    whole.add(named)
                else:
                    consumed[named] = dict(use)
        return Usage(whole, consumed.keys(), consumed)


def seen_by(state: AllocatorState, node: str, rate: Rate | None) -> VisibleDevices:
    """What ``node`` sees. Within a slice the devices are in the order of ``rate``; those that are
    rated alike, and all where there is none, stay as the driver has them."""
    parts = [
        state.published.remembered(part.name, partial(readable_part, part))
        for part in state.published.published_for(node)
    ]
    slices = tuple(_ordered(one.slice, rate) if rate else one.slice for one in parts)
    unread = tuple(fault for one in parts for fault in one.unread)
    return VisibleDevices(slices, tuple(tuple(_uses(state, part)) for part in slices), unread)


def _ordered(part: ResourceSlice, rate: Rate) -> ResourceSlice:
    return replace(part, devices=tuple(sorted(part.devices, key=partial(rate, part))))


def load_of(capacity: Mapping[str, Capacity], use: DeviceUse) -> int:
    """The share in use of the capacity that is used most, in millionths."""
    if use.whole:
        return FULL
    load = 0
    for name, used in use.used.items():
        total = amount_of(capacity[name].value) if name in capacity else None
        if used and total:
            load = max(load, used * FULL // total)
    return load


def _uses(state: AllocatorState, part: ResourceSlice) -> Iterator[Use]:
    ill = state.published.unhealthy(part.node, part.driver)
    for device in part.devices:
        use = state.device_usage.of(DeviceId(part.driver, part.pool, device.name))
        if device.name in ill:
            yield ILL
        elif use.whole:
            yield HELD
        elif use.shares:
            yield tuple(sorted(entry for entry in use.used.items() if entry[1]))
        else:
            yield None
