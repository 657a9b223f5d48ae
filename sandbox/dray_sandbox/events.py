"""Kubernetes events as the stand-ins write them."""

import time
from typing import Any


def event_of(
    kind: str,
    namespace: str,
    name: str,
    uid: str,
    severity: str,
    reason: str,
    message: str,
    component: str,
) -> dict[str, Any]:
    """A core/v1 Event about one object; ``severity`` is Normal or Warning."""
    now = _now()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
        "type": severity,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def counted_again(event: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that says the event happened once more."""
    return {"count": event.get("count", 1) + 1, "lastTimestamp": _now()}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
