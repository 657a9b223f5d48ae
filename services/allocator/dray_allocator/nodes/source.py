"""Where a node table reads current values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dray.api.devices import DeviceId
from dray.api.pods import Node
from dray_allocator.devices.device_usage import DeviceUse
from dray_allocator.devices.node_devices import Card
from dray_allocator.nodes.assumed_pods import AssumedResources

_MOST: Final = 2**62
"""The limit of amounts of cpu and memory."""


@dataclass(frozen=True, slots=True)
class Source:
    """Functions that return the current values."""

    node: Callable[[str], Node]
    held: Callable[[str], AssumedResources]
    cards: Callable[[str], Sequence[Card]]
    use: Callable[[DeviceId], DeviceUse]


def is_open(card: Card, use: DeviceUse) -> bool:
    """Whether the card may be allocated, apart from amounts (``device_requests.has_room``)."""
    return not use.shares or (card.device.allow_multiple_allocations and not use.whole)


def bounded(amount: int) -> int:
    """Limit an amount to what a column can hold."""
    return amount if -_MOST < amount < _MOST else max(-_MOST, min(amount, _MOST))
