"""A pod's story, from what was seen of it. Pure: observations in, lines out."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

ORDER = (
    "admitted",
    "template",
    "claim",
    "waiting",
    "decided",
    "committed",
    "bound",
    "prepared",
    "running",
)
"""The steps of a pod with a GPU; ``waiting`` only where nothing fitted at first."""
REQUIRED = tuple(step for step in ORDER if step != "waiting")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to a pod, when it was seen, and in words."""

    name: str
    at_unix_s: float
    text: str


@dataclass(slots=True)
class Story:
    """What was seen of one pod; the first sighting of each step counts."""

    namespace: str
    name: str
    asked_unix_s: float
    trace_id: str = ""
    request_id: str = ""
    uid: str = ""
    steps: dict[str, Step] = field(default_factory=dict)

    def saw(self, step: str, at_unix_s: float, text: str) -> None:
        """Note a step, unless it was seen before."""
        self.steps.setdefault(step, Step(step, at_unix_s, text))

    @property
    def missing(self) -> tuple[str, ...]:
        """The steps that were not seen yet."""
        return tuple(step for step in REQUIRED if step not in self.steps)

    @property
    def is_complete(self) -> bool:
        return not self.missing

    def in_order(self) -> list[Step]:
        """The steps seen, in the order of the main job."""
        return [self.steps[name] for name in ORDER if name in self.steps]

    def lines(self) -> list[str]:
        """The timeline as a person reads it: time since the request, step, what it was."""
        head = f"{self.namespace}/{self.name}"
        lines = [f"{head:<40} trace {self.trace_id or '(not sampled)'}"]
        for step in self.in_order():
            since_ms = max(0.0, (step.at_unix_s - self.asked_unix_s) * 1000)
            lines.append(f"  {since_ms:8.0f} ms  {step.name:<10} {step.text}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """The timeline as data; durations in milliseconds since the request."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "traceId": self.trace_id,
            "steps": [
                {
                    "step": step.name,
                    "sinceRequestMs": round((step.at_unix_s - self.asked_unix_s) * 1000, 3),
                    "text": step.text,
                }
                for step in self.in_order()
            ],
            "missing": list(self.missing),
        }


def understood_text(understood: dict[str, str]) -> str:
    """What the webhook read from the annotations, in one line."""
    return ", ".join(f"{name} {value}" for name, value in understood.items())


def devices_text(devices: Iterable[tuple[str, dict[str, str]]]) -> str:
    """Devices with what is consumed of each, in one line."""
    parts = []
    for device, consumed in devices:
        amounts = " ".join(f"{name}={amount}" for name, amount in sorted(consumed.items()))
        parts.append(f"{device} [{amounts}]" if amounts else device)
    return ", ".join(parts)
