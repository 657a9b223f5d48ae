"""Counts of what fails, with the groups of devices that miss by least."""

from dataclasses import dataclass, field

from dray_allocator.devices.visible_pools import Group

Rank = tuple[int, ...]
"""How far from what is wanted; the least is nearest."""


@dataclass(frozen=True, slots=True)
class Miss:
    """How near a device comes to what is wanted."""

    rank: Rank = ()
    seen: str = ""
    """What it has instead, if that is an amount or a value."""
    detail: str = ""
    """The detail if this one is the nearest."""


@dataclass(slots=True)
class FailureCounts:
    """One cause, on all devices so far."""

    count: int = 0
    near: list[tuple[Group, Miss]] = field(default_factory=list)
    """The groups that are equally near, in the order of coming; none where no one is nearer."""

    def add(self, group: Group, miss: Miss | None) -> None:
        """The cause holds for a group; no miss: there is no more or less of it."""
        self.count += group.count
        if miss is None:
            return
        if self.near and miss.rank < self.near[0][1].rank:
            self.near.clear()
        if not self.near or miss.rank == self.near[0][1].rank:
            self.near.append((group, miss))
