"""A recorded answer that comes out differently, for people and for programs."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

import msgspec

from dray.messages.inputs import Noted

_SHORT = 120


@dataclass(frozen=True, slots=True)
class AnswerDifference:
    """A question that this code answers differently."""

    service: str
    asked: Noted
    made: Any
    cause: Noted | None
    """The last event that was folded before the question was asked."""

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
        if self.cause is not None:
            found += ["The last event before it:", f"  event {_event(self.cause)}"]
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
        metadata = obj["metadata"]
        name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        yield f"{name} at {metadata.get('resourceVersion', '?')}"


def _short(data: Any) -> str:
    text = msgspec.json.encode(data).decode()
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def _pretty(answer: Any) -> list[str]:
    text = msgspec.json.encode(answer, order="deterministic")
    return msgspec.json.format(text, indent=2).decode().splitlines()
