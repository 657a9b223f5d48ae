"""Whether a pod's devices are to be connected (``devices.links``)."""

from collections.abc import Sequence
from typing import Final

from dray.api.placement import HARD, NO_TOPOLOGY, Placement
from dray_allocator.devices.device_requests import DeviceRequirements

CONNECTED: Final = "joined by NVLink, on one NUMA node or under one PCIe root"


def concerns(asks: Sequence[DeviceRequirements], topology: str) -> bool:
    """Whether links between devices matter for these requests together."""
    is_one = len(asks) == 1 and asks[0].request.count == 1
    return bool(asks) and not is_one and topology != NO_TOPOLOGY


def must_be_connected(asks: Sequence[DeviceRequirements], placement: Placement) -> bool:
    """Whether only connected devices fit."""
    return placement.topology == HARD and concerns(asks, HARD)
