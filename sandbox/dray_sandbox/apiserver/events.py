"""One store of Events, two APIs: core/v1 (stored) and events.k8s.io/v1 (a view of it)."""

from __future__ import annotations

from .status import Object

_NEW_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_TO_NEW = {core: new for new, core in _NEW_TO_CORE.items()}


def to_core(event: Object) -> Object:
    """An events.k8s.io/v1 Event as core/v1."""
    core = {_NEW_TO_CORE.get(key, key): value for key, value in event.items()}
    return core | {"apiVersion": "v1", "kind": "Event"}


def to_new(event: Object) -> Object:
    """A core/v1 Event as events.k8s.io/v1."""
    new = {_CORE_TO_NEW.get(key, key): value for key, value in event.items()}
    return new | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
