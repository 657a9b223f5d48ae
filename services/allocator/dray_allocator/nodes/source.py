"""Where a node table reads what is so now, and what it makes of single values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dray.api.devices import DeviceId
from dray.api.pods import Node
from dray_allocator.devices.device_usage import DeviceUse
from dray_allocator.devices.node_devices import Card
from dray_allocator.nodes.assumed_pods import AssumedResources

_MOST: Final = 2**62
"""Amounts of cpu and memory beyond it count as this much."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the node table reads what is so now."""

    node: Callable[[str], Node]
    held: Callable[[str], AssumedResources]
    cards: Callable[[str], Sequence[Card]]
    use: Callable[[DeviceId], DeviceUse]


def is_open(card: Card, use: DeviceUse) -> bool:
    """Whether a share is possible: ``device_requests.has_room``, except for the amounts."""
    return not use.shares or (card.device.allow_multiple_allocations and not use.whole)


def bounded(amount: int) -> int:
    """An amount that a column can hold."""
    return amount if -_MOST < amount < _MOST else max(-_MOST, min(amount, _MOST))
