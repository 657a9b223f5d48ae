"""The health of devices, as node-agents publish it. Pure."""

from dray.api.devices import Device
from dray.api.names import PHASE, UNHEALTHY_PHASE, qualified


def is_unhealthy(device: Device) -> bool:
    """Whether the node-agent publishes a card as unhealthy."""
    phase = device.attributes.get(PHASE, device.attributes.get(qualified(PHASE)))
    return phase == UNHEALTHY_PHASE
