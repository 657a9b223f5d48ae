"""The PriorityClass of a pod's quality of service."""

from collections.abc import Container
from typing import Any, Final

_PREFIX: Final = "tensor-fusion-"
_FILLED: Final = ("priority", "preemptionPolicy")
"""The API server fills these fields from the default class before it calls the webhook, and refuses
values that differ from those of the class."""


def class_of(qos: str, classes: Container[str]) -> str:
    """The class that the chart creates for a level; empty: there is none."""
    name = _PREFIX + qos
    return name if qos and name in classes else ""


def prioritize(spec: dict[str, Any], class_name: str) -> None:
    """Set the class, if the pod names none."""
    if not class_name or spec.get("priorityClassName"):
        return
    spec["priorityClassName"] = class_name
    for name in _FILLED:
        spec.pop(name, None)
