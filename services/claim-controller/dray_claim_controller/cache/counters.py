"""Counters that the devices of a pool share, as their slices publish them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dray.api.devices import DeviceCounterConsumption, ResourceSlice


@dataclass(frozen=True, slots=True)
class SharedCounters:
    """What a slice, or a pool, says of counters. Quantities as text."""

    sets: dict[tuple[str, str], str] = field(default_factory=dict)
    """How much there is, by counter set and counter."""
    uses: dict[str, tuple[DeviceCounterConsumption, ...]] = field(default_factory=dict)
    """What a device takes while it is allocated, by its name; those that take nothing are left
    out."""


def shared_counters(part: ResourceSlice) -> SharedCounters | None:
    """What a slice says of counters; None if it says nothing."""
    sets = {
        (one.name, counter): amount
        for one in part.counter_sets
        for counter, amount in one.counters.items()
    }
    uses = {one.name: one.consumes for one in part.devices if one.consumes}
    return SharedCounters(sets, uses) if sets or uses else None


def merge_counters(parts: Iterable[SharedCounters]) -> SharedCounters:
    """What the slices of a pool say together."""
    whole = SharedCounters()
    for part in parts:
        whole.sets.update(part.sets)
        whole.uses.update(part.uses)
    return whole
