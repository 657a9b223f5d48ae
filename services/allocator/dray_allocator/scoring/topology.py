"""Whether a pod prefers or needs connected devices (``devices.links``)."""

from collections.abc import Sequence
from typing import Final

from dray.api.placement import HARD, NO_TOPOLOGY, Placement
from dray_allocator.devices.device_requests import DeviceRequirements

CONNECTED: Final = "joined by NVLink, on one NUMA node or under one PCIe root"


def concerns(asks: Sequence[DeviceRequirements], topology: str) -> bool:
    """Whether links between devices matter for these requests together."""
    return may_be_connected(sum(ask.request.count for ask in asks), topology)


def may_be_connected(devices: int, topology: str) -> bool:
    """The same for a number of devices."""
    return devices > 1 and topology != NO_TOPOLOGY


def must_be_connected(asks: Sequence[DeviceRequirements], placement: Placement) -> bool:
    """Whether only connected devices fit."""
    return placement.topology == HARD and concerns(asks, HARD)
