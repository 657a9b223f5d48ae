"""How devices of a node are connected: by NVLink, on one NUMA node, under one PCIe root.

Lower link levels are better: NVLink before everything else, then a common NUMA node, then a common
PCIe root.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from dray.api.device_links import link_attributes, links_of, own_attribute
from dray.api.devices import DeviceId
from dray.api.names import NVLINK_DOMAIN
from dray_allocator.devices.candidates import Candidate

_NVLINK, _NUMA, _PCIE = range(3)
_LEVELS: Final = (
    (_NVLINK, _NUMA, _PCIE),
    (_NVLINK, _NUMA),
    (_NVLINK, _PCIE),
    (_NVLINK,),
    (_NUMA, _PCIE),
    (_NUMA,),
    (_PCIE,),
)
"""By link level, the links that all devices of a set have in common."""
LINK_LEVELS: Final = range(len(_LEVELS))
NOT_CONNECTED: Final = len(_LEVELS)
"""The link level of sets without a common link."""
BEYOND_NVLINK: Final = 4
"""Sets of lower link levels are connected by NVLink."""


class Attributed(Protocol):
    """Anything with attributes."""

    @property
    def attributes(self) -> Mapping[str, object]: ...


class LinkedDevice(Protocol):
    """A device with its ID."""

    @property
    def id(self) -> DeviceId: ...

    @property
    def device(self) -> Attributed: ...


def is_linked(device: LinkedDevice) -> bool:
    """Whether NVLink connects the device to another one."""
    return own_attribute(device.id.driver, device.device.attributes, NVLINK_DOMAIN) is not None


def has_link_attributes(devices: Iterable[LinkedDevice]) -> bool:
    """Whether any of these devices publishes a link attribute."""
    return any(
        not link_attributes(one.id.driver).isdisjoint(one.device.attributes) for one in devices
    )


class LinkSets:
    """The sets of connected candidates."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._links = [(one, _links(one)) for one in candidates]
        self._named = [
            at for at in _LEVELS[0] if any(links[at] is not None for _, links in self._links)
        ]

    def of(self, level: int) -> Iterable[frozenset[Candidate]]:
        """The largest sets of a link level, in the order of their first candidates."""
        sets: dict[tuple[tuple[type, object], ...], list[Candidate]] = {}
        wanted = _LEVELS[level]
        if not all(at in self._named for at in wanted):
            return ()
        for candidate, links in self._links:
            # Values with types, as in constraints: 1 is not true.
            shared = tuple([(type(one), one) for at in wanted if (one := links[at]) is not None])
            if len(shared) == len(wanted):
                sets.setdefault(shared, []).append(candidate)
        return map(frozenset, sets.values())


def _links(device: LinkedDevice) -> tuple[object, ...]:
    return links_of(device.id.driver, device.device.attributes)
