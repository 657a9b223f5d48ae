"""A published device with what is computed from it, and what of that equal devices share."""

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
"""Of devices of which their slices and pools say nothing that the search reads."""


@dataclass(frozen=True, slots=True)
class DeviceShape:
    """What is computed of a device's capacities, held once for all that have equal ones."""

    totals: Mapping[str, int]
    """Published capacity in billionths of a unit; nothing where it can't be read."""
    fault: str
    """Why the node table never allocates such a device: what of it can't be read, or is not read
    there; empty if all is."""


def shape_of(device: Device) -> DeviceShape:
    """The shape of a device."""
    beyond = (f"has {what}" for what in fields_beyond_table(device))
    return DeviceShape(totals_of(device.capacity), ", ".join((*faults_of(device), *beyond)))


@dataclass(frozen=True, slots=True)
class ReadablePart:
    """The devices of a slice of which everything can be read."""

    slice: ResourceSlice
    unread: tuple[tuple[DeviceId, str], ...] = ()
    """The other devices, and what of them can't be read."""


@dataclass(slots=True)
class Card:
    """A published device with what is computed from it, mostly once. Not to be changed."""

    id: DeviceId
    device: Device
    node: str
    capacity_shape: int = -1
    """Equal for devices from which every request consumes the same; below 0: not known."""
    index: int = 0
    """Which of its node's cards it is."""
    _shape: DeviceShape | None = field(default=None, repr=False, compare=False)
    _candidate: Candidate | None = field(default=None, init=False, repr=False, compare=False)
    _view: DeviceView | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The identity as text."""
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
        """The device as the search tries it."""
        if self._candidate is None:
            self._candidate = Candidate(self.id, self.device, _SLICE, _POOL)
        return self._candidate

    @property
    def view(self) -> DeviceView:
        """What selectors see."""
        if self._view is None:
            self._view = view_of(self.id.driver, self.device)
        return self._view


def totals_of(capacity: Mapping[str, Capacity]) -> Mapping[str, int]:
    """Published capacity in billionths of a unit; none where it is no amount."""
    return {key: amount_of(one.value) or 0 for key, one in capacity.items()}


def faults_of(device: Device) -> Iterator[str]:
    """Why a device is never allocated: what of it can't be read."""
    for what in device.unsupported:
        if what != NEWER_FIELDS:
            yield f"has {what}"
    for key, one in sorted(device.capacity.items()):
        yield from (f"{key} is {text}" for text in quantities_of(one) if not _is_sound(text))


def readable_part(part: ResourceSlice) -> ReadablePart:
    """A slice without the devices of which something can't be read."""
    faults = {one.name: fault for one in part.devices if (fault := ", ".join(faults_of(one)))}
    if not faults:
        return ReadablePart(part)
    devices = tuple(one for one in part.devices if one.name not in faults)
    unread = tuple(
        (DeviceId(part.driver, part.pool, name), fault) for name, fault in faults.items()
    )
    return ReadablePart(replace(part, devices=devices), unread)


def _is_sound(text: str) -> bool:
    amount = amount_of(text)
    return amount is not None and amount >= 0
