"""How long a search may take, counted in devices, so that every replica stops at the same one."""

from dataclasses import dataclass, field
from typing import Final

NODE_LOOKS: Final = 5_000
"""Devices looked at on one node before it counts as unfit: constraints can make a search long."""
POD_LOOKS: Final = 20_000
"""Devices looked at for one pod on the nodes that the table picks, in some tenths of a second."""


@dataclass(slots=True)
class SearchBudget:
    """How many devices may still be looked at."""

    most: int
    whole: "SearchBudget | None" = None
    """What it is a part of, and uses up with itself."""
    left: int = field(init=False)
    ran_out: bool = field(default=False, init=False)
    """Whether a search ended for want of it, and so says nothing about what it did not look at."""

    def __post_init__(self) -> None:
        self.left = self.most

    @property
    def is_spent(self) -> bool:
        """Whether no device may be looked at any more."""
        return self.left <= 0 or (self.whole is not None and self.whole.is_spent)

    def part(self, most: int) -> "SearchBudget":
        """At most so many of the devices, for one node."""
        return SearchBudget(most, self)

    def renew(self) -> None:
        """Begin again with as many as at first, as far as the whole allows."""
        self.left, self.ran_out = self.most, False

    def take(self) -> bool:
        """Look at one more device; False if none is left."""
        if self.is_spent:
            self.ran_out = True
            return False
        self.spend(1)
        return True

    def spend(self, devices: int) -> None:
        """So many were looked at, be it more than there were left."""
        self.left -= devices
        if self.whole is not None:
            self.whole.spend(devices)
