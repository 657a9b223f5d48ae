"""The stored status of GPUPools, read tolerantly. Pure."""

from dataclasses import dataclass
from typing import Any

from dray.kube.ports import Object

_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")
_LOG = {"epoch": int, "lastSequence": int, "factsCreated": str}


def stored_status(pool: Object) -> Object:
    """A GPUPool's status without fields of a wrong type: an older or foreign definition of the
    resource may have allowed them."""
    status = pool.get("status")
    if not isinstance(status, dict):
        return {}
    checks = {
        "owner": _is_text,
        "observedGeneration": _is_number,
        "decisionLog": _is_log,
        "conditions": _are_conditions,
    }
    return {
        name: value
        for name, value in status.items()
        if value is None or checks.get(name, _is_anything)(value)
    }


def _is_anything(value: Any) -> bool:
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) is int


def _is_log(value: Any) -> bool:
    return isinstance(value, dict) and all(
        value.get(name) is None or type(value[name]) is kind for name, kind in _LOG.items()
    )


def _are_conditions(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict) and all(isinstance(one.get(name), str) for name in _CONDITION)
        for one in value
    )


@dataclass(frozen=True, slots=True)
class RememberedLog:
    """``GPUPool.status.decisionLog``."""

    epoch: int = 0
    last_sequence: int = 0
    facts_created: str = ""
    """``StreamState.created`` of the facts' stream that the log's records refer to."""


def remembered_log(pool: Object) -> RememberedLog:
    """The pool's log according to its stored status; epoch 0: none was ever opened."""
    log = stored_status(pool).get("decisionLog") or {}
    return RememberedLog(
        int(log.get("epoch") or 0),
        int(log.get("lastSequence") or 0),
        str(log.get("factsCreated") or ""),
    )
