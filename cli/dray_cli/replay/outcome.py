"""What a replay found."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol


class Difference(Protocol):
    """Where a replay parted from its recording."""

    def lines(self) -> list[str]:
        """As a person reads it."""

    def as_json(self) -> dict[str, Any]:
        """As data."""


@dataclass(slots=True)
class Outcome:
    """What a replay found."""

    facts: int = 0
    inputs: int = 0
    compared: Counter[str] = field(default_factory=Counter)
    """Records and reviews that came out with the same bytes, by kind."""
    folded: int = 0
    """Records from before the recording's checkpoint, and openings: taken in only."""
    uncovered: int = 0
    """Records and reviews whose facts the recording does not have step by step."""
    entangled: int = 0
    """Records that another domain's log had a say in: taken in only."""
    divergence: Difference | None = None
