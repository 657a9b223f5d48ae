"""Whether a pod's devices are ready for it to be bound. Pure.

A device may have binding conditions (KEP-5007), for example if it is attached to the node after its
allocation. Its driver reports them in ``status.devices`` of the claim. The pod is bound when all
``bindingConditions`` are true. The allocation is rolled back once one of
``bindingFailureConditions`` is true, or too much time has passed since the decision. This follows
``isPodReadyForBinding`` of kube-scheduler's plugin ``dynamicresources``, with two differences: a
failure counts even if an earlier device is not ready, and time does not count from
``allocationTimestamp``, which depends on the writer's wall clock.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dray.api.claims import AllocatedDevice
from dray_claim_controller.cache.cached_objects import CachedResourceClaim

_FAILED, _TIMED_OUT, NODE_GONE = "binding-failed", "binding-timeout", "node-gone"
NEVER_READY = (_FAILED, _TIMED_OUT, NODE_GONE)
"""Reasons to stop waiting for devices."""


@dataclass(frozen=True, slots=True)
class ConditionsPending:
    """Some conditions are not true yet."""

    detail: str
    """Which ones, of which devices."""
    until_unix_s: float
    """When waiting ends, in the facts' time."""


@dataclass(frozen=True, slots=True)
class ConditionsFailed:
    """Waiting for the devices has ended."""

    reason: str
    """One of ``NEVER_READY``."""
    detail: str


def readiness(
    claims: Iterable[CachedResourceClaim],
    *,
    now_unix_s: float,
    since_unix_s: float,
    timeout_s: float,
) -> ConditionsPending | ConditionsFailed | None:
    """Why devices that the claims hold are not ready; None if all are ready.

    ``since_unix_s``: when they were decided, in the facts' time as ``now_unix_s``.
    """
    held = tuple(claims)
    for claim in held:
        for failure in _failures(claim):
            return ConditionsFailed(_FAILED, failure)
    missing = {claim.claim.uid: tuple(_missing(claim)) for claim in held}
    unready = [claim for claim in held if missing[claim.claim.uid]]
    if not unready:
        return None
    detail = "; ".join(text for claim in unready for text in missing[claim.claim.uid])
    if abs(now_unix_s - since_unix_s) >= timeout_s:
        return ConditionsFailed(_TIMED_OUT, f"after {timeout_s:g} s still {detail}")
    return ConditionsPending(detail, since_unix_s + timeout_s)


def _failures(claim: CachedResourceClaim) -> Iterator[str]:
    for device, conditions in _conditioned(claim):
        assert device.terms is not None
        for name in device.terms.binding_failure_conditions:
            condition = conditions.get(name) or {}
            if condition.get("status") == "True":
                why = ": ".join(
                    str(condition[key]) for key in ("reason", "message") if condition.get(key)
                )
                yield f"device {device.id} has the condition {name}" + (f" ({why})" if why else "")


def _missing(claim: CachedResourceClaim) -> Iterator[str]:
    for device, conditions in _conditioned(claim):
        assert device.terms is not None
        names = [
            name
            for name in device.terms.binding_conditions
            if (conditions.get(name) or {}).get("status") != "True"
        ]
        if names:
            yield f"device {device.id} lacks the condition {', '.join(names)}"


def _conditioned(claim: CachedResourceClaim) -> Iterator[tuple[AllocatedDevice, Mapping[str, Any]]]:
    """Devices with binding conditions, and the reported conditions of each, by type."""
    allocation = claim.claim.allocation
    conditions: dict[tuple[str, ...], dict[str, Any]] | None = None
    for device in allocation.devices if allocation is not None else ():
        if device.terms is None or not device.terms.binding_conditions:
            continue
        if conditions is None:
            conditions = _device_conditions(claim)
        key = (device.id.driver, device.id.pool, device.id.device, device.share_id or "")
        yield device, conditions.get(key, {})


def _device_conditions(claim: CachedResourceClaim) -> dict[tuple[str, ...], dict[str, Any]]:
    """Reported conditions by type, of each device; a share has its own status."""
    status = claim.object.get("status") or {}
    return {
        (entry["driver"], entry["pool"], entry["device"], entry.get("shareID") or ""): {
            condition["type"]: condition for condition in entry.get("conditions") or ()
        }
        for entry in status.get("devices") or ()
    }
