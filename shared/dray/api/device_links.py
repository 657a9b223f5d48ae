"""How devices of a node are connected: NVLink, one NUMA node, one PCIe root."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from dray.api.names import NUMA_NODE, NVLINK_DOMAIN, PCIE_ROOT, qualified

LINK_NAMES: Final = ("NVLink", "NUMA node", "PCIe root")
"""In the order of the links."""


def links_of(driver: str, attributes: Mapping[str, object]) -> tuple[object, ...]:
    """The values of a device's link attributes, in the order of ``LINK_NAMES``.

    Two devices are connected if one of their values is equal.
    """
    return (
        own_attribute(driver, attributes, NVLINK_DOMAIN),
        own_attribute(driver, attributes, NUMA_NODE),
        attributes.get(PCIE_ROOT),
    )


@cache
def link_attributes(driver: str) -> frozenset[str]:
    """The names under which a driver's devices may have link attributes."""
    own = (NVLINK_DOMAIN, NUMA_NODE)
    return frozenset((*own, *(qualified(name, driver) for name in own), PCIE_ROOT))


def common_links(links: Iterable[tuple[object, ...]]) -> tuple[str, ...]:
    """The names of the links that devices have in common. ``links``: ``links_of`` each device."""
    return tuple(
        name
        for name, values in zip(LINK_NAMES, zip(*links, strict=True), strict=True)
        if values[0] is not None and all(value == values[0] for value in values)
    )


def own_attribute(driver: str, attributes: Mapping[str, object], name: str) -> object:
    """An attribute in the driver's domain, which a slice may omit from the name."""
    if name in attributes:
        return attributes[name]
    return attributes.get(qualified(name, driver))
