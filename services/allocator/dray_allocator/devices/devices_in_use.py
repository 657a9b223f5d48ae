"""The devices in use before a search, in the form that it reads."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from dray.api.claims import AllocatedDevice
from dray.api.devices import DeviceId
from dray.api.quantities import parse_quantity
from dray_allocator.devices.versions import SchedulerVersion


@dataclass(frozen=True, slots=True)
class DevicesInUse:
    """The devices in use before a search."""

    whole: Set[DeviceId] = frozenset()
    shared: Set[DeviceId] = frozenset()
    """Devices with a share that a claim holds."""
    consumed: Mapping[DeviceId, Mapping[str, int]] = field(default_factory=dict)
    """Per device and capacity, the sum of what shares consume, in billionths. Only shares with
    consumed capacity count, even if the amount is 0."""

    def holds(self, device: DeviceId) -> bool:
        """Whether a claim holds the device or a share of it."""
        return device in self.whole or device in self.shared


def devices_in_use(allocated: Iterable[AllocatedDevice], version: SchedulerVersion) -> DevicesInUse:
    """What claims hold. Without DRAConsumableCapacity a share counts as
    the whole device."""
    whole: set[DeviceId] = set()
    shared: set[DeviceId] = set()
    consumed: dict[DeviceId, dict[str, int]] = {}
    for share in allocated:
        if share.admin_access:
            continue
        if share.share_id is None or not version.consumable_capacity:
            whole.add(share.id)
            continue
        shared.add(share.id)
        if share.consumed:
            sums = consumed.setdefault(share.id, {})
            for name, amount in share.consumed.items():
                sums[name] = sums.get(name, 0) + parse_quantity(amount).nano
    return DevicesInUse(whole, shared, consumed)
