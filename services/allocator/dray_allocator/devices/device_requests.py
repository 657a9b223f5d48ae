"""Requests for cards, the devices that the node table reads."""

from collections.abc import Mapping

import msgspec

from dray.api.claims import Constraint, DeviceRequest
from dray.api.devices import Taint
from dray.api.preference import Preference as Criteria
from dray_allocator.devices.allocation_state import untolerated
from dray_allocator.devices.capacity import WHOLE, Demand, demand
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.percentages import amounts
from dray_allocator.devices.published_devices import Card, NodeDevices
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.devices.versions import NEWEST, scheduler_version

VERSION = scheduler_version(NEWEST)
"""See ``devices.versions.version_for_pod``."""
_NO_PERCENTS: Mapping[str, int] = {}


class DeviceRequirements(msgspec.Struct, frozen=True, gc=False):
    """One request of one claim, with the selectors of its class. Pods with equal claims share
    it."""

    claim: int
    """The position of its claim among the pod's pending claims."""
    request: DeviceRequest
    selectors: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    signature: bytes
    """Equal for requests that the same devices satisfy."""
    percents: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Percentages of a device's capacity (``devices.percentages``)."""
    preference: Criteria = ()
    """The criteria of preferred devices."""
    amounts: dict[int, Demand | None] = msgspec.field(default_factory=dict)
    """A cache of demands by ``DeviceShape.number``; equal requests share it."""

    def of(self, card: Card) -> Demand | None:
        """How much it consumes of this device; None if a policy or the device's size forbids it."""
        shape, amounts = card.shape.number, self.amounts
        if shape < 0:
            return needed(self.request, card, self.percents)
        if shape not in amounts:
            amounts[shape] = needed(self.request, card, self.percents)
        return amounts[shape]

    def untolerated(self, card: Card) -> Taint | None:
        """A taint of the device that the request does not tolerate."""
        return untolerated(card.device.taints, self.request.tolerations)


class Share(msgspec.Struct, frozen=True, gc=False):
    """A device, or a share of it, for a request."""

    ask: DeviceRequirements
    card: Card
    consumed: Demand


def eligible(
    ask: DeviceRequirements, devices: NodeDevices, selectors: SelectorCache
) -> tuple[Card, ...]:
    """The devices of a node that match and whose taints are tolerated, even if they are in use."""
    known = devices.eligible.get(ask.signature)
    if known is not None:
        return known
    return devices.cache_eligible(
        ask.signature,
        tuple(
            card
            for card in devices.cards
            if not card.shape.fault
            and ask.untolerated(card) is None
            and selectors.matches(ask.selectors, card)
        ),
    )


def needed(
    request: DeviceRequest, card: Card, percents: Mapping[str, int] = _NO_PERCENTS
) -> Demand | None:
    """How much the request consumes of this device; None if a policy or the size forbids it."""
    device = card.device
    is_shared = device.allow_multiple_allocations
    asked = amounts(percents, request.capacity, device.capacity) if is_shared else request.capacity
    try:
        found = demand(asked, device.capacity, VERSION)
    except AllocationError:
        return None
    if is_shared or found is None:
        return found
    return WHOLE if found.fits_with({}) else None
