"""Kubernetes Events that the stand-ins write."""

import time
from typing import Any


def event_object(
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


def count_patch(event: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that counts one more occurrence of the event."""
    return {"count": event.get("count", 1) + 1, "lastTimestamp": _now()}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
