"""A pod's timeline, from observations. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dray_cli.text import wrapped

_ORDER = (
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
"""The steps of a pod with a GPU; ``waiting`` only if nothing fitted at first."""
REQUIRED = tuple(step for step in _ORDER if step != "waiting")

_INDENT = 26
"""Column after a step's name."""


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """One step of a pod: when it was observed, and its text."""

    name: str
    at_unix_s: float
    text: str
    details: tuple[str, ...] = ()
    """Lines below the step."""


@dataclass(slots=True)
class Story:
    """The timeline of one pod; the first observation of each step counts."""

    namespace: str
    name: str
    asked_unix_s: float
    trace_id: str = ""
    request_id: str = ""
    uid: str = ""
    binder: str = ""
    bind_phase: str = ""
    steps: dict[str, TimelineStep] = field(default_factory=dict)

    def saw(self, step: str, at_unix_s: float, text: str, details: tuple[str, ...] = ()) -> None:
        """Add a step, unless it was observed before."""
        self.steps.setdefault(step, TimelineStep(step, at_unix_s, text, details))

    @property
    def missing(self) -> tuple[str, ...]:
        """The steps not observed yet."""
        return tuple(step for step in REQUIRED if step not in self.steps)

    @property
    def is_complete(self) -> bool:
        """Whether the pod runs, and its BindRequest says that it was bound."""
        return not self.missing and self.bind_phase == "Succeeded"

    def in_order(self) -> list[TimelineStep]:
        """The observed steps, in the order from admission to running."""
        return [self.steps[name] for name in _ORDER if name in self.steps]

    def lines(self, width: int = 80, shortened: Callable[[str], str] = str) -> list[str]:
        """The timeline for people: time since the request, step, and what was observed.

        ``shortened`` puts short names into a text before it is broken into lines.
        """
        head = f"{self.namespace}/{self.name}"
        lines = [f"{head:<40} trace {self.trace_id or '(not sampled)'}"]
        for step in self.in_order():
            since_ms = max(0.0, (step.at_unix_s - self.asked_unix_s) * 1000)
            when = f"  {since_ms:8.0f} ms  {step.name:<10} "
            first, *rest = wrapped(shortened(self._text(step)), width - _INDENT, 0).split("\n")
            lines.append(f"{when}{first}")
            lines += [f"{'':{_INDENT}}{detail}" for detail in (*rest, *step.details)]
        return lines

    def _text(self, step: TimelineStep) -> str:
        """The step in words, with the BindRequest's current phase, not the one at the binding."""
        if step.name != "bound":
            return step.text
        return f"{step.text} by {self.binder or '?'}, BindRequest {self.bind_phase or 'Pending'}"

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
                    "text": self._text(step),
                    "details": list(step.details),
                }
                for step in self.in_order()
            ],
            "missing": list(self.missing),
        }
