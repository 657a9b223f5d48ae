"""Counters that the devices of a pool share, as their slices publish them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dray.api.dra.slices import CounterUse
from dray.api.errors import InvalidInputError
from dray.kube.convert_dra_slices import slice_from
from dray.kube.ports import Object


@dataclass(frozen=True, slots=True)
class SharedCounters:
    """What a slice, or a pool, says of counters. Quantities as text."""

    sets: dict[tuple[str, str], str] = field(default_factory=dict)
    """How much there is, by counter set and counter."""
    uses: dict[str, tuple[CounterUse, ...]] = field(default_factory=dict)
    """What a device takes while it is allocated, by its name; those that take nothing are left
    out."""


def shared_counters(obj: Object) -> SharedCounters | None:
    """What a ResourceSlice says of counters; None where it says nothing, or can't be read."""
    spec = obj.get("spec") or {}
    devices = spec.get("devices") or ()
    if not spec.get("sharedCounters") and not any(one.get("consumesCounters") for one in devices):
        return None
    try:
        known = slice_from(obj)
    except InvalidInputError:
        return None
    sets = {
        (one.name, counter): amount
        for one in known.counter_sets
        for counter, amount in one.counters.items()
    }
    return SharedCounters(sets, {one.name: one.consumes for one in known.devices if one.consumes})


def merge_counters(parts: Iterable[SharedCounters]) -> SharedCounters:
    """What the slices of a pool say together."""
    whole = SharedCounters()
    for part in parts:
        whole.sets.update(part.sets)
        whole.uses.update(part.uses)
    return whole
