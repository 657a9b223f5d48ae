"""One store of Events, two APIs: core/v1 (stored) and events.k8s.io/v1 (a view of it)."""

from .status import FieldError, Object, invalid, required

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


def new_errors(event: Object) -> list[FieldError]:
    """Findings about a new Event by the rules of events.k8s.io/v1 that core/v1 lacks."""
    found = [] if event.get("eventTime") else [required("eventTime")]
    kind = event.get("type", "")
    if kind not in ("Normal", "Warning"):
        found.append(invalid("type", kind, f"has invalid value: {kind}"))
    if found:
        return found
    names = ("reportingController", "reportingInstance", "action", "reason")
    return [required(name) for name in names if not event.get(name)]


def to_new(event: Object) -> Object:
    """A core/v1 Event as events.k8s.io/v1."""
    new = {_CORE_TO_NEW.get(key, key): value for key, value in event.items()}
    for key in ("reportingController", "reportingInstance"):
        if not new.get(key):
            new.pop(key, None)
    return new | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
