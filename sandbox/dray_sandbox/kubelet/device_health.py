"""The health of devices, as drivers report it and the kubelet remembers it. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

_UNKNOWN: Final = "Unknown"
_NAMES: Final = {0: _UNKNOWN, 1: "Healthy", 2: "Unhealthy"}
DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""


class ReportedHealth(msgspec.Struct, frozen=True):
    """A device's health by its driver, and when it was reported (monotonic seconds)."""

    health: str
    message: str
    timeout_s: float
    updated_s: float


def health_name(number: int) -> str:
    """The name in a container's status for a health number of the protocol."""
    return _NAMES.get(number, _UNKNOWN)


class DeviceHealthCache:
    """Follows the kubelet's ``healthInfoCache``: health that was reported too long ago is
    unknown."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._devices: dict[DeviceKey, ReportedHealth] = {}

    def update(
        self, reported: Iterable[tuple[DeviceKey, str, str, float]], *, now_s: float
    ) -> tuple[DeviceKey, ...]:
        """Store a driver's list of (device, health, message, time-out or 0); returns the devices
        whose health or message changed."""
        changed = []
        for key, health, message, timeout_s in reported:
            before = self._devices.get(key)
            if before is None or (before.health, before.message) != (health, message):
                changed.append(key)
            limit_s = timeout_s if timeout_s > 0 else self._timeout_s
            self._devices[key] = ReportedHealth(health, message, limit_s, now_s)
        return tuple(changed)

    def forget(self, driver: str) -> None:
        """Forget the health of a driver's devices, because its stream ended."""
        self._devices = {key: one for key, one in self._devices.items() if key[0] != driver}

    def health(self, key: DeviceKey, *, now_s: float) -> tuple[str, str]:
        """Health and message of a device."""
        known = self._devices.get(key)
        if known is None or now_s - known.updated_s > known.timeout_s:
            return _UNKNOWN, ""
        return known.health, known.message
