"""Limits of a search by the number of trials, so that all replicas stop at the same one.

A trial is a device; in the joint search of a group, a node for several pods together.
"""

from typing import Final

import msgspec

MAX_TRIES_PER_NODE: Final = 5_000
"""Devices that are tried on one node before it counts as infeasible. Constraints can make a search
long."""
MAX_FIRST_TRIES_BY_TABLE: Final = 200
"""Devices tried on a node that the node table selects before the next node. An easy node needs as
many as the pod requests."""
MAX_FIRST_TRIES_BY_SEARCH: Final = 500
"""Devices tried on a node before other nodes are tried, if the search decides. The search may also
try each device of the node four times."""
MAX_TRIES_PER_POD: Final = 20_000
"""Devices that are tried for one pod on the nodes that the node table selects: some tenths of a
second."""


class SearchBudget(msgspec.Struct, gc=False):
    """How many trials a search may make."""

    limit: int
    parent: "SearchBudget | None" = None
    """The budget that this one is a part of; trials count against both."""
    tried: int = 0
    ran_out: bool = False
    """Whether a search ended because the budget was spent; what it did not try may fit."""

    @property
    def is_spent(self) -> bool:
        """Whether no more trials are allowed."""
        return self.tried >= self.limit or (self.parent is not None and self.parent.is_spent)

    def part(self, limit: int) -> "SearchBudget":
        """A budget for one node, within this one."""
        return SearchBudget(limit, self)

    def reset(self) -> None:
        """Begin again with ``limit``. The parent is not reset."""
        self.tried, self.ran_out = 0, False

    def take(self) -> bool:
        """Count one trial; False if the budget is spent."""
        if self.is_spent:
            self.ran_out = True
            return False
        self.spend(1)
        return True

    def spend(self, trials: int) -> None:
        """Count trials, even if they are more than remain."""
        self.tried += trials
        if self.parent is not None:
            self.parent.spend(trials)
