"""What a replay found."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

SERVICES = ("webhook", "claim-controller", "allocator", "node-agent")


class RecordDifference(Protocol):
    """The first difference between a replay and its recording."""

    def lines(self) -> list[str]:
        """As a person reads it."""

    def as_json(self) -> dict[str, Any]:
        """As data."""


@dataclass(slots=True)
class ReplayTally:
    """What a replay found for one service."""

    consumed: int = 0
    """Events that were folded again, for services that record their own events."""
    compared: Counter[str] = field(default_factory=Counter)
    """Decisions that came out with the same bytes, by kind."""
    folded: int = 0
    """Records that were only folded: openings, records before the recording's checkpoint, and
    records that follow trimmed ones, up to a checkpoint."""
    uncovered: int = 0
    """Decisions whose inputs the recording does not have step by step."""
    unresolved: Counter[str] = field(default_factory=Counter)
    """Reviews not compared, because their answers need look-ups that the recording does not have;
    by kind of look-up."""
    entangled: int = 0
    """Records that depend on another domain's log: applied, not compared."""
    divergence: RecordDifference | None = None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "equal": self.divergence is None,
            "consumed": self.consumed,
            "compared": dict(sorted(self.compared.items())),
            "folded": self.folded,
            "uncovered": self.uncovered,
            "unresolved": dict(sorted(self.unresolved.items())),
            "entangled": self.entangled,
            "divergence": None if self.divergence is None else self.divergence.as_json(),
        }


@dataclass(slots=True)
class ReplayOutcome:
    """What a replay found, by service."""

    facts: int = 0
    services: dict[str, ReplayTally] = field(
        default_factory=lambda: {service: ReplayTally() for service in SERVICES}
    )
    unknown: Counter[str] = field(default_factory=Counter)
    """What this version can't replay, by kind."""

    @property
    def divergence(self) -> RecordDifference | None:
        """The first difference of the first service that has one."""
        found = (tally.divergence for tally in self.services.values())
        return next((one for one in found if one is not None), None)

    @property
    def compared(self) -> Counter[str]:
        """Equal decisions of all services, by kind."""
        return sum((tally.compared for tally in self.services.values()), Counter())
