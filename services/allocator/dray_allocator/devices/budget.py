"""Limits of a search by the number of tried devices, so that all replicas stop at the same one."""

from dataclasses import dataclass, field
from typing import Final

MAX_TRIES_PER_NODE: Final = 5_000
"""Devices that are tried on one node before it counts as infeasible. Constraints can make a search
long."""
MAX_TRIES_PER_POD: Final = 20_000
"""Devices that are tried for one pod on the nodes that the node table selects: some tenths of a
second."""


@dataclass(slots=True)
class SearchBudget:
    """How many devices a search may still try."""

    limit: int
    parent: "SearchBudget | None" = None
    """The budget that this one is a part of; devices count against both."""
    remaining: int = field(init=False)
    ran_out: bool = field(default=False, init=False)
    """Whether a search ended because the budget was spent; devices that it did not try may fit."""

    def __post_init__(self) -> None:
        self.remaining = self.limit

    @property
    def is_spent(self) -> bool:
        """Whether no more devices may be tried."""
        return self.remaining <= 0 or (self.parent is not None and self.parent.is_spent)

    def part(self, limit: int) -> "SearchBudget":
        """A budget for one node, within this one."""
        return SearchBudget(limit, self)

    def reset(self) -> None:
        """Reset to ``limit``. The parent is not reset."""
        self.remaining, self.ran_out = self.limit, False

    def take(self) -> bool:
        """Count one tried device; False if the budget is spent."""
        if self.is_spent:
            self.ran_out = True
            return False
        self.spend(1)
        return True

    def spend(self, devices: int) -> None:
        """Count tried devices, even if they are more than remain."""
        self.remaining -= devices
        if self.parent is not None:
            self.parent.spend(devices)
