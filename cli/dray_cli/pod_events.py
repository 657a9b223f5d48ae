"""What the events of a pod say."""

from dataclasses import dataclass

from dray.kube.ports import EVENTS, Kube, NotFoundError, Object, RefusedError


@dataclass(frozen=True, slots=True)
class EventSeries:
    """The events of one reason about a pod."""

    message: str
    """The message of the newest event."""
    times: int
    last: str
    """In RFC 3339; empty if the event has no time."""


async def event_of(kube: Kube, pod: Object, reason: str) -> EventSeries | None:
    """The events of that reason; None if there are none, or this user may not read them."""
    metadata = pod["metadata"]
    about = f"involvedObject.uid={metadata['uid']},reason={reason}"
    try:
        events = (await kube.list(EVENTS, metadata["namespace"], field_selector=about)).objects
    except (RefusedError, NotFoundError):
        return None
    if not events:
        return None
    newest = max(events, key=_last)
    return EventSeries(str(newest.get("message") or ""), sum(map(_times, events)), _last(newest))


def _last(event: Object) -> str:
    series = event.get("series") or {}
    times = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    return max(str(one or "") for one in times)


def _times(event: Object) -> int:
    return int((event.get("series") or {}).get("count") or event.get("count") or 1)
