"""Whether the devices of claims are ready for their pod to be bound (KEP-5007). Pure.

Written from kube-scheduler 1.36's ``isClaimReadyForBinding``, ``isClaimTimeout`` and
``isPodReadyForBinding``, not from dray's own waiting: the stand-in must be able to disagree with
it. As there, devices and claims are looked at in order: nobody sees what failed behind one that is
merely not ready.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dray.api.errors import TemporaryError
from dray.kube.convert_metadata import time_from
from dray.kube.ports import Object

TIMEOUT_S: Final = 600.0
"""``bindingTimeout`` of the plugin, as long as nobody configures it."""


_WHERE: Final = 'running PreBind plugin "DynamicResources"'


class BindingError(TemporaryError):
    """The devices will not get ready, or not in time; the pod is tried again."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """How far the devices of one claim are."""

    is_asked: bool = False
    """Whether any of them has conditions to be met."""
    is_ready: bool = True
    failure: str = ""
    """Of the first condition that says that it comes to nothing, reason and message."""
    allocated_unix_s: float = 0.0
    """0: nobody said."""

    def is_late(self, now_unix_s: float, timeout_s: float = TIMEOUT_S) -> bool:
        """Whether it took too long already."""
        since = self.allocated_unix_s
        return bool(self.is_asked and since and since + timeout_s < now_unix_s)

    def is_given_up(self, now_unix_s: float, timeout_s: float = TIMEOUT_S) -> bool:
        """Whether other devices are to be looked for: PostFilter may clear the claim."""
        late = not self.is_ready and self.is_late(now_unix_s, timeout_s)
        return bool(self.failure) or late


def readiness_of(status: Object) -> Readiness:
    """The readiness that a claim's status tells."""
    allocation = status.get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    asked = [one for one in results if one.get("bindingConditions")]
    since = time_from(allocation.get("allocationTimestamp"))
    for result in asked:
        told = _told(status, result)
        for name in result.get("bindingFailureConditions") or ():
            if (why := told.get(name, {})).get("status") == "True":
                words = f'reason={why.get("reason", "")}, message="{why.get("message", "")}"'
                return Readiness(True, False, words, since)
        if any(told.get(name, {}).get("status") != "True" for name in result["bindingConditions"]):
            return Readiness(True, False, "", since)
    return Readiness(bool(asked), bool(allocation), "", since)


def are_ready(
    claims: Iterable[tuple[str, Readiness]], now_unix_s: float, timeout_s: float = TIMEOUT_S
) -> bool:
    """Whether the devices of all claims, with their names, are ready.

    Raises:
        BindingError: those of the first claim that is not ready have failed, or are too late.
    """
    for name, one in claims:
        if one.failure:
            raise BindingError(f"{_WHERE}: device binding failed: claim={name}, {one.failure}")
        if not one.is_ready:
            if one.is_late(now_unix_s, timeout_s):
                raise BindingError(f"{_WHERE}: device binding timeout: claim={name}")
            return False
    return True


def _told(status: Object, result: Object) -> dict[str, Object]:
    """The conditions of a device, by type. Of several shares of one the first that is told."""
    for entry in status.get("devices") or ():
        if all(entry[key] == result[key] for key in ("driver", "pool", "device")):
            return {condition["type"]: condition for condition in entry.get("conditions") or ()}
    return {}
