"""How devices of a node are connected: by NVLink, on one NUMA node, under one PCIe root.

The lower a link level, the better the devices of a set work together: those that NVLink connects
come before all others; of equals those on one NUMA node, then those under one PCIe root.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from dray.api.devices import DeviceId
from dray.api.names import NUMA_NODE, NVLINK_DOMAIN, PCIE_ROOT, qualified
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
"""By link level, what all devices of a set share."""
LINK_LEVELS: Final = range(len(_LEVELS))
NOT_CONNECTED: Final = len(_LEVELS)
"""The link level of sets that share nothing."""
BEYOND_NVLINK: Final = 4
"""NVLink connects the sets of every link level below it."""


class Attributed(Protocol):
    """What publishes attributes."""

    @property
    def attributes(self) -> Mapping[str, object]: ...


class LinkedDevice(Protocol):
    """A device with its identity."""

    @property
    def id(self) -> DeviceId: ...

    @property
    def device(self) -> Attributed: ...


def is_linked(device: LinkedDevice) -> bool:
    """Whether NVLink connects the device to another one."""
    return _own_attribute(device.id.driver, device.device.attributes, NVLINK_DOMAIN) is not None


def names_links(devices: Iterable[LinkedDevice]) -> bool:
    """Whether any of these devices says how it is connected to others."""
    return any(link is not None for device in devices for link in _links(device))


class LinkSets:
    """Sets of candidates that are connected."""

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
            # With their types, as constraints compare: 1 is not true.
            shared = tuple([(type(one), one) for at in wanted if (one := links[at]) is not None])
            if len(shared) == len(wanted):
                sets.setdefault(shared, []).append(candidate)
        return map(frozenset, sets.values())


def links_of(driver: str, attributes: Mapping[str, object]) -> tuple[object, ...]:
    """What is equal for devices that are connected, in the order of ``_NVLINK`` and so on."""
    return (
        _own_attribute(driver, attributes, NVLINK_DOMAIN),
        _own_attribute(driver, attributes, NUMA_NODE),
        attributes.get(PCIE_ROOT),
    )


def _links(device: LinkedDevice) -> tuple[object, ...]:
    return links_of(device.id.driver, device.device.attributes)


def _own_attribute(driver: str, attributes: Mapping[str, object], name: str) -> object:
    """An attribute in the driver's own domain, which a slice may leave out."""
    if name in attributes:
        return attributes[name]
    return attributes.get(qualified(name, driver))
