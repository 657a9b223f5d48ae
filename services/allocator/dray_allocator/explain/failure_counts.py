"""Counts of failures, with the nearest groups of devices."""

from dataclasses import dataclass, field

from dray_allocator.devices.visible_pools import Group

Rank = tuple[int, ...]
"""How far a device is from fitting; the lowest is the nearest."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """How far a device is from fitting, and what it has."""

    rank: Rank = ()
    seen: str = ""
    """The amount or value that it has."""
    detail: str = ""
    """The detail of the reason, if this device is the nearest one."""


@dataclass(slots=True)
class FailureCounts:
    """One cause, counted over groups of devices."""

    count: int = 0
    near: list[tuple[Group, Shortfall]] = field(default_factory=list)
    """The nearest groups, in the order of ``add``; empty if the cause has no distance."""

    def add(self, group: Group, shortfall: Shortfall | None) -> None:
        """Count a group with this cause. None: the cause has no distance."""
        self.count += group.count
        if shortfall is None:
            return
        if self.near and shortfall.rank < self.near[0][1].rank:
            self.near.clear()
        if not self.near or shortfall.rank == self.near[0][1].rank:
            self.near.append((group, shortfall))
