"""What claims hold already, as far as it limits others."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from dray.api.devices import DeviceId
from dray.api.dra.asks import Holding
from dray.api.quantities import parse_quantity
from dray_allocator.devices.versions import SchedulerVersion


@dataclass(frozen=True, slots=True)
class Usage:
    """Devices in use before the attempt."""

    whole: Set[DeviceId] = frozenset()
    shared: Set[DeviceId] = frozenset()
    """Of which at least one share is held."""
    consumed: Mapping[DeviceId, Mapping[str, int]] = field(default_factory=dict)
    """The sum of the shares that state what they consume, be it nothing, in billionths."""

    def holds(self, device: DeviceId) -> bool:
        """Whether a claim holds the device or a share of it."""
        return device in self.whole or device in self.shared


def usage_of(holdings: Iterable[Holding], rules: SchedulerVersion) -> Usage:
    """The usage that ``holdings`` make. Shares count as such only where capacity is consumable."""
    whole: set[DeviceId] = set()
    shared: set[DeviceId] = set()
    consumed: dict[DeviceId, dict[str, int]] = {}
    for holding in holdings:
        if holding.admin_access:
            continue
        device = DeviceId(holding.driver, holding.pool, holding.device)
        if not (holding.is_share and rules.consumable_capacity):
            whole.add(device)
            continue
        shared.add(device)
        if holding.consumed is not None:
            sums = consumed.setdefault(device, {})
            for name, amount in holding.consumed.items():
                sums[name] = sums.get(name, 0) + parse_quantity(amount).nano
    return Usage(whole, shared, consumed)
