"""Counters that the devices of a pool share, as their slices publish them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dray.api.devices import DeviceCounterConsumption, ResourceSlice


@dataclass(frozen=True, slots=True)
class SharedCounters:
    """The counters of a slice or a pool. Quantities are text."""

    sets: dict[tuple[str, str], str] = field(default_factory=dict)
    """The available amounts, by counter set and counter."""
    uses: dict[str, tuple[DeviceCounterConsumption, ...]] = field(default_factory=dict)
    """What each device consumes while it is allocated, by device name; devices that consume nothing
    are left out."""


def shared_counters(part: ResourceSlice) -> SharedCounters | None:
    """The counters of a slice; None if it has none."""
    sets = {
        (one.name, counter): amount
        for one in part.counter_sets
        for counter, amount in one.counters.items()
    }
    uses = {one.name: one.consumes for one in part.devices if one.consumes}
    return SharedCounters(sets, uses) if sets or uses else None


def merge_counters(parts: Iterable[SharedCounters]) -> SharedCounters:
    """The counters of all slices of a pool."""
    whole = SharedCounters()
    for part in parts:
        whole.sets.update(part.sets)
        whole.uses.update(part.uses)
    return whole
