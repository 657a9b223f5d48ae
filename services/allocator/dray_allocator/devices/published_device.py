"""Cards: published devices with values computed from them. Equal devices share these values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from dray.api.devices import NEWER_FIELDS, Capacity, Device, DeviceId, ResourceSlice
from dray.cel.device import view_of
from dray.cel.view import DeviceView
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.pools import ResourcePool
from dray_allocator.devices.published_capacity import amount_of, quantities_of
from dray_allocator.devices.table_scope import fields_beyond_table

_SLICE, _POOL = ResourceSlice("", "", "", "", 0, 1, ""), ResourcePool("", "")
"""For cards: the search reads nothing of their slice and pool."""


@dataclass(frozen=True, slots=True)
class DeviceShape:
    """Values computed from a device's capacities; one object for all devices with equal ones."""

    totals: Mapping[str, int]
    """Published capacity in billionths of a unit; 0 if it can't be parsed."""
    fault: str
    """Why the node table never allocates such a device: fields that can't be parsed or that the
    node table does not support; empty if there are none."""


def shape_of(device: Device) -> DeviceShape:
    """The shape of a device."""
    beyond = (f"has {what}" for what in fields_beyond_table(device))
    return DeviceShape(totals_of(device.capacity), ", ".join((*faults_of(device), *beyond)))


@dataclass(frozen=True, slots=True)
class ReadablePart:
    """A slice with only the devices that can be parsed."""

    slice: ResourceSlice
    unparsable: tuple[tuple[DeviceId, str], ...] = ()
    """The other devices, and the fields that can't be parsed."""


@dataclass(slots=True)
class Card:
    """A published device that the node table reads, with values computed from it. Read-only."""

    id: DeviceId
    device: Device
    node: str
    capacity_shape: int = -1
    """Equal for devices from which every request consumes the same amounts; below 0: unknown."""
    index: int = 0
    """Its position among the cards of its node."""
    _shape: DeviceShape | None = field(default=None, repr=False, compare=False)
    _candidate: Candidate | None = field(default=None, init=False, repr=False, compare=False)
    _view: DeviceView | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The device ID as text."""
        return str(self.id)

    @property
    def totals(self) -> Mapping[str, int]:
        """See ``DeviceShape``."""
        return (self._shape or self._read()).totals

    @property
    def fault(self) -> str:
        """See ``DeviceShape``."""
        return (self._shape or self._read()).fault

    def _read(self) -> DeviceShape:
        self._shape = shape_of(self.device)
        return self._shape

    @property
    def candidate(self) -> Candidate:
        """The candidate for the search."""
        if self._candidate is None:
            self._candidate = Candidate(self.id, self.device, _SLICE, _POOL)
        return self._candidate

    @property
    def view(self) -> DeviceView:
        """The ``device`` variable of CEL selectors."""
        if self._view is None:
            self._view = view_of(self.id.driver, self.device)
        return self._view


def totals_of(capacity: Mapping[str, Capacity]) -> Mapping[str, int]:
    """Published capacity in billionths of a unit; 0 if it can't be parsed."""
    return {key: amount_of(one.value) or 0 for key, one in capacity.items()}


def faults_of(device: Device) -> Iterator[str]:
    """The fields of a device that can't be parsed; such a device is never allocated."""
    for what in device.unsupported:
        if what != NEWER_FIELDS:
            yield f"has {what}"
    for key, one in sorted(device.capacity.items()):
        yield from (f"{key} is {text}" for text in quantities_of(one) if not _is_sound(text))


def readable_part(part: ResourceSlice) -> ReadablePart:
    """A slice without the devices that can't be parsed."""
    faults = {one.name: fault for one in part.devices if (fault := ", ".join(faults_of(one)))}
    if not faults:
        return ReadablePart(part)
    devices = tuple(one for one in part.devices if one.name not in faults)
    unparsable = tuple(
        (DeviceId(part.driver, part.pool, name), fault) for name, fault in faults.items()
    )
    return ReadablePart(replace(part, devices=devices), unparsable)


def _is_sound(text: str) -> bool:
    amount = amount_of(text)
    return amount is not None and amount >= 0
