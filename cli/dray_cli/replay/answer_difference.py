"""A recorded answer that this version does not reproduce, as text and as data."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

import msgspec

from dray.api import json_codec
from dray.messages.inputs import Noted

_SHORT = 120
_MOST_EVENTS = 5


class Events:
    """The applied events: the last one, and the newest one about each object."""

    def __init__(self) -> None:
        self.last: Noted | None = None
        self._newest: dict[str, Noted] = {}

    def add(self, event: Noted) -> None:
        """Add the next event."""
        self.last = event
        for obj in event.data["objects"]:
            for identity in _identities(obj):
                self._newest[identity] = event

    def about(self, question: Any) -> list[Noted]:
        """The newest event about each object that a question names, newest first."""
        found = {
            event.number: event
            for text in _texts(question)
            if (event := self._newest.get(text)) is not None
        }
        return [found[number] for number in sorted(found, reverse=True)][:_MOST_EVENTS]


@dataclass(frozen=True, slots=True)
class AnswerDifference:
    """A question that this version answers differently."""

    service: str
    asked: Noted
    made: Any
    events: Events
    """The events that were applied before the question."""

    @property
    def cause(self) -> Noted | None:
        """The newest event about the question's objects, else the last event."""
        about = self.events.about(self.asked.data)
        return about[0] if about else self.events.last

    def difference(self) -> str:
        """The two answers as a unified diff."""
        before, after = _pretty(self.asked.answer), _pretty(self.made)
        return "\n".join(unified_diff(before, after, "recorded", "replayed", n=4, lineterm=""))

    def lines(self) -> list[str]:
        one = self.asked
        found = [
            f"First difference: question {one.number} ({one.about}) of {self.service} "
            f"{one.instance!r}."
        ]
        about = self.events.about(self.asked.data)
        if self.events.last is not None and not about:
            found += ["The last event before it:", f"  event {_event(self.events.last)}"]
        if about:
            found += ["The events about it, newest first:"]
            found += [f"  event {_event(event)}" for event in about]
        found += ["What was asked:", f"  {_short(one.data)}"]
        return [*found, "", self.difference()]

    def as_json(self) -> dict[str, Any]:
        cause = self.cause
        return {
            "service": self.service,
            "question": self.asked.about,
            "number": self.asked.number,
            "writer": self.asked.instance,
            "event": cause
            and {"number": cause.number, "about": cause.about, "objects": list(_names(cause))},
            "asked": self.asked.data,
            "recorded": self.asked.answer,
            "replayed": self.made,
            "difference": self.difference(),
        }


def _event(noted: Noted) -> str:
    names = list(_names(noted))
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{noted.number}  {noted.about} {noted.data['resource']} {shown}".rstrip()


def _names(noted: Noted) -> Iterator[str]:
    for obj in noted.data["objects"]:
        name = next(_identities(obj))
        yield f"{name} at {obj['metadata'].get('resourceVersion', '?')}"


def _identities(obj: Any) -> Iterator[str]:
    """Its name, with the namespace if it has one, and its UID."""
    metadata = obj["metadata"]
    yield "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    if "uid" in metadata:
        yield metadata["uid"]


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)


def _short(data: Any) -> str:
    text = msgspec.json.encode(data).decode()
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def _pretty(answer: Any) -> list[str]:
    text = msgspec.json.encode(json_codec.abridged(answer), order="deterministic")
    return msgspec.json.format(text, indent=2).decode().splitlines()
