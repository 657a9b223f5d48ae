"""Equivalence classes of devices for the claims of one pod; each class is evaluated once.

A thousand nodes with equal devices differ by uuids and names. If no selector and no constraint of
the pod reads these, the nodes are in one class (``devices.node_equivalence``).
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from dray.api.claims import Claim
from dray.api.devices import Attribute, Capacity, Device, DeviceClass, ResourceSlice, Version
from dray.cel.errors import CelError
from dray.cel.eval.program import compile
from dray.cel.reads import OWN_DOMAIN, Read
from dray_allocator.devices.selector_cache import named_reads
from dray_allocator.devices.versions import SchedulerVersion

AttributeName = tuple[str, str]
"""Domain and name of an attribute."""
_INT64: Final = range(-(2**63), 2**63)


def attributes_read(
    claims: Sequence[Claim], classes: dict[str, DeviceClass], version: SchedulerVersion
) -> tuple[AttributeName, ...] | None:
    """The attributes that selectors and constraints of the claims read; None if they may read
    any."""
    found: dict[AttributeName, None] = {}
    for claim in claims:
        for constraint in claim.spec.constraints:
            for name in (constraint.match_attribute, constraint.distinct_attribute):
                domain, _, own = (name or "").rpartition("/")
                found[domain, own] = None
    for text in _selectors(claims, classes):
        reads = _reads(text, version)
        if reads is None:
            return None
        found.update({(one.domain, one.name): None for one in reads if one.field == "attributes"})
    return tuple(found)


def _selectors(claims: Iterable[Claim], classes: dict[str, DeviceClass]) -> Iterator[str]:
    for _, ask in (one for claim in claims for one in claim.spec.alternatives()):
        of_class = classes.get(ask.device_class)
        yield from (*(of_class.selectors if of_class else ()), *ask.selectors)


def _reads(text: str, version: SchedulerVersion) -> Sequence[Read] | None:
    try:
        return named_reads(compile(text, version.language).tree)
    except CelError:
        return None  # The API server may be newer and compile it.


class DeviceEquivalence:
    """Numbers the classes. Devices of one class are equal in all fields that the pod's claims
    read."""

    def __init__(
        self, attributes: tuple[AttributeName, ...] | None, *, reads_links: bool = False
    ) -> None:
        """``attributes``: those that the pod reads; None for all. ``reads_links``: it also reads
        which devices are connected."""
        self.reads_links = reads_links
        self._attribute_names = attributes
        self._numbers: dict[Hashable, int] = {}
        self._capacities: dict[int, tuple[dict[str, Capacity], int]] = {}
        """By identity: equal capacities are one object (``published_devices.PublishedDevices``)."""

    def of(self, part: ResourceSlice, device: Device) -> int:
        """The class of a device of a slice. The name of the device does not matter."""
        key = (
            part.driver,
            self._capacity(device.capacity),
            device.allow_multiple_allocations,
            device.taints,
            device.binding_conditions,
            repr(device.consumes) if device.consumes else "",
            device.binds_to_node,
            self._attributes(part.driver, device),
        )
        return self.number(key)

    def number(self, key: Hashable) -> int:
        """The number of a key; equal keys have the same one."""
        return self._numbers.setdefault(key, len(self._numbers))

    def _capacity(self, capacity: dict[str, Capacity]) -> int:
        known = self._capacities.get(id(capacity))
        if known is None:
            known = capacity, self.number(("capacity", tuple(sorted(capacity.items(), key=_name))))
            self._capacities[id(capacity)] = known  # A reference, so that the id is not reused.
        return known[1]

    def _attributes(self, driver: str, device: Device) -> Hashable:
        """Values with their types: 1 is not true. Values on which every selector fails always
        count."""
        published = device.attributes
        if self._attribute_names is None:
            return repr(sorted(published.items()))
        read: list[Attribute] = []
        for domain, name in self._attribute_names:
            read.append(published.get(f"{domain}/{name}"))
            read.append(published.get(name) if domain in (driver, OWN_DOMAIN, "") else None)
            if domain == OWN_DOMAIN:
                read.append(published.get(f"{driver}/{name}"))
        failing = [entry for entry in published.items() if _may_fail(entry[1])]
        return repr((read, failing))


def _name(entry: tuple[str, object]) -> str:
    return entry[0]


def _may_fail(value: object) -> bool:
    if value is None or isinstance(value, Version | tuple):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and value not in _INT64
