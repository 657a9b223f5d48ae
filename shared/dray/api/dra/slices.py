"""Devices as drivers publish them: ``ResourceSlice`` in full."""

from dataclasses import dataclass, field

from dray.api.devices import AttributeValue, Capacity, Taint
from dray.api.dra.nodes import NOWHERE, Reach

Attribute = AttributeValue | tuple[AttributeValue, ...] | None
"""One value, several (a list attribute), or none, which no selector can read."""


@dataclass(frozen=True, slots=True)
class CounterSet:
    """Counters that the devices of a pool share. Quantities as text."""

    name: str
    counters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CounterUse:
    """What a device takes of one counter set while it is allocated. Quantities as text."""

    counter_set: str
    counters: dict[str, str] = field(default_factory=dict)
    compatibility_groups: tuple[str, ...] = ()
    """1.37 alpha: such a slice counts as unpublished where the gate is off."""


@dataclass(frozen=True, slots=True)
class Device:
    """One allocatable unit. Attribute and capacity keys are as published (domain optional)."""

    name: str
    attributes: dict[str, Attribute] = field(default_factory=dict)
    capacity: dict[str, Capacity] = field(default_factory=dict)
    allow_multiple_allocations: bool = False
    consumes: tuple[CounterUse, ...] = ()
    taints: tuple[Taint, ...] = ()
    reach: Reach = NOWHERE
    """Read only if the slice delegates node selection to its devices."""
    binds_to_node: bool = False
    """Once allocated, the claim can be used only on the chosen node."""
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TaintRule:
    """``DeviceTaintRule``: a taint that an administrator puts on devices from outside. Of driver,
    pool and device those that are not empty must be the device's."""

    name: str
    taint: Taint
    driver: str = ""
    pool: str = ""
    device: str = ""

    def selects(self, driver: str, pool: str, device: str) -> bool:
        """Whether the rule is about a device."""
        wanted = ((self.driver, driver), (self.pool, pool), (self.device, device))
        return all(not stated or stated == own for stated, own in wanted)


@dataclass(frozen=True, slots=True)
class Slice:
    """One published part of a pool: devices, or the counter sets that they share."""

    name: str
    driver: str
    pool: str
    generation: int = 0
    """Slices of an older generation of the pool are ignored."""
    slice_count: int = 1
    """Slices that the pool has in this generation."""
    reach: Reach = NOWHERE
    per_device_reach: bool | None = None
    """Whether each device states its own nodes; None: not stated."""
    devices: tuple[Device, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()

    def reach_of(self, device: Device) -> Reach:
        """The nodes that can use ``device`` of this slice."""
        return device.reach if self.per_device_reach else self.reach
