"""What a request asks of the devices that the node table reads."""

from collections.abc import Mapping

import msgspec

from dray.api.claims import Constraint, DeviceRequest
from dray.api.devices import DeviceId, Taint
from dray.api.preference import Preference as Criteria
from dray.api.quantities import Quantity
from dray_allocator.devices.allocation_state import untolerated
from dray_allocator.devices.capacity import WHOLE, Demand, demand
from dray_allocator.devices.device_usage import DeviceUsage
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.node_devices import Card, NodeDevices
from dray_allocator.devices.percentages import amounts
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.devices.versions import NEWEST, rules_for

RULES = rules_for(NEWEST)
"""See ``devices.versions.rules_of``."""
NO_PERCENTS: Mapping[str, int] = {}


class DeviceRequirements(msgspec.Struct, frozen=True, gc=False):
    """One request of one claim, with its class's selectors. Pods of one pattern share it."""

    claim: int
    """Which of the pod's open claims it is of."""
    request: DeviceRequest
    selectors: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    signature: bytes
    """Equal for requests that the same devices satisfy."""
    percents: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Shares that depend on the device (``devices.percentages``)."""
    preference: Criteria = ()
    """Which devices it would rather have, of those that fit."""
    amounts: dict[int, Demand | None] = msgspec.field(default_factory=dict)
    """What it takes of a device, per capacity shape; one for all that ask for the same."""

    def of(self, card: Card) -> Demand | None:
        """What it takes of this device; None where policy or size forbids it."""
        shape, amounts = card.capacity_shape, self.amounts
        if shape < 0:
            return needed(self.request, card, self.percents)
        if shape not in amounts:
            amounts[shape] = needed(self.request, card, self.percents)
        return amounts[shape]

    def untolerated(self, card: Card) -> Taint | None:
        """A taint that keeps it away."""
        return untolerated(card.device.taints, self.request.tolerations)


class Share(msgspec.Struct, frozen=True, gc=False):
    """A device given to an ask."""

    ask: DeviceRequirements
    card: Card
    consumed: Demand


def eligible(
    ask: DeviceRequirements, devices: NodeDevices, selectors: SelectorCache
) -> tuple[Card, ...]:
    """Devices of a node that match and whose taints are tolerated; use is not looked at."""
    known = devices.eligible.get(ask.signature)
    if known is not None:
        return known
    return devices.remember(
        ask.signature,
        tuple(
            card
            for card in devices.cards
            if not card.fault
            and ask.untolerated(card) is None
            and selectors.matches(ask.selectors, card)
        ),
    )


def needed(
    request: DeviceRequest, card: Card, percents: Mapping[str, int] = NO_PERCENTS
) -> Demand | None:
    """What the request takes of this device; None where its policy or size forbids it."""
    device = card.device
    is_shared = device.allow_multiple_allocations
    asked = amounts(percents, request.capacity, device.capacity) if is_shared else request.capacity
    try:
        found = demand(asked, device.capacity, RULES)
    except AllocationError:
        return None
    if is_shared or found is None:
        return found
    return WHOLE if found.fits_beside({}) else None


def has_room(device_usage: DeviceUsage, card: Card, consumed: Demand) -> bool:
    """Whether the device can give ``consumed`` besides all uses."""
    use = device_usage.of(card.id)
    if use.whole or not card.device.allow_multiple_allocations:
        return not use.shares
    return consumed.fits_beside(use.used)


def oversold(device_usage: DeviceUsage, card: Card | None, device: DeviceId) -> str:
    """How a device is used more than it can be, in words; empty while all is well."""
    if not device.is_whole:
        return ""  # It stands for all devices that it may be.
    use = device_usage.of(device)
    if use.shares > 1 and (use.whole or (card and not card.device.allow_multiple_allocations)):
        return f"{device} is taken whole and yet has {use.shares} users"
    if card is None:
        return ""
    for key, amount in use.used.items():
        if key in card.totals and amount > card.totals[key]:
            seen = Quantity(amount, binary=True)
            return f"{device} has {card.device.capacity[key].value} of {key}, {seen} are in use"
    return ""
