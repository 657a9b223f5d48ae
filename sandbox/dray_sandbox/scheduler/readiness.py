"""Readiness of claims' devices for binding (KEP-5007). Pure.

Follows kube-scheduler 1.36's ``isClaimReadyForBinding``, ``isClaimTimeout`` and
``isPodReadyForBinding``, not dray's code, so that tests can find differences between the two. As in
kube-scheduler, devices and claims are checked in order: one that is not ready hides later failures.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dray.api.errors import TemporaryError
from dray.kube.convert_metadata import time_from
from dray.kube.ports import Object

TIMEOUT_S: Final = 600.0
"""The plugin's default ``bindingTimeout``."""


_PREFIX: Final = 'running PreBind plugin "DynamicResources"'


class BindingError(TemporaryError):
    """The devices failed or timed out; the pod is retried."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Readiness of one claim's devices."""

    has_conditions: bool = False
    """Whether a device has binding conditions."""
    is_ready: bool = True
    failure: str = ""
    """Reason and message of the first binding failure condition that is true."""
    allocated_unix_s: float = 0.0
    """When the devices were allocated; 0: unknown."""

    def is_timed_out(self, now_unix_s: float, timeout_s: float = TIMEOUT_S) -> bool:
        """Whether the binding timeout has passed."""
        since = self.allocated_unix_s
        return bool(self.has_conditions and since and since + timeout_s < now_unix_s)

    def needs_reallocation(self, now_unix_s: float, timeout_s: float = TIMEOUT_S) -> bool:
        """Whether the claim needs other devices; then PostFilter may deallocate it."""
        late = not self.is_ready and self.is_timed_out(now_unix_s, timeout_s)
        return bool(self.failure) or late


def readiness_of(status: Object) -> Readiness:
    """The readiness in a claim's status."""
    allocation = status.get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    asked = [one for one in results if one.get("bindingConditions")]
    since = time_from(allocation.get("allocationTimestamp"))
    for result in asked:
        conditions = _conditions_of(status, result)
        for name in result.get("bindingFailureConditions") or ():
            if (why := conditions.get(name, {})).get("status") == "True":
                words = f'reason={why.get("reason", "")}, message="{why.get("message", "")}"'
                return Readiness(True, False, words, since)
        if any(
            conditions.get(name, {}).get("status") != "True" for name in result["bindingConditions"]
        ):
            return Readiness(True, False, "", since)
    return Readiness(bool(asked), bool(allocation), "", since)


def are_ready(
    claims: Iterable[tuple[str, Readiness]], now_unix_s: float, timeout_s: float = TIMEOUT_S
) -> bool:
    """Whether the devices of all claims are ready.

    Raises:
        BindingError: devices of the first claim that is not ready failed or timed out.
    """
    for name, one in claims:
        if one.failure:
            raise BindingError(f"{_PREFIX}: device binding failed: claim={name}, {one.failure}")
        if not one.is_ready:
            if one.is_timed_out(now_unix_s, timeout_s):
                raise BindingError(f"{_PREFIX}: device binding timeout: claim={name}")
            return False
    return True


def _conditions_of(status: Object, result: Object) -> dict[str, Object]:
    """The conditions of a device, by type; if a device has several shares, those of the first."""
    for entry in status.get("devices") or ():
        if all(entry[key] == result[key] for key in ("driver", "pool", "device")):
            return {condition["type"]: condition for condition in entry.get("conditions") or ()}
    return {}
