"""Short names of GPUs, such as ``sim-1/gpu-3``: the node, and the GPU's number on it.

GPUs are numbered by their PCI bus address, as nvidia-smi numbers them. The device's name in
Kubernetes is its uuid: 40 characters that nobody remembers.
"""

import re
from collections.abc import Iterable, Iterator

import click

from dray.api.names import DRIVER, PCI_BUS_ID
from dray.kube.ports import SLICES, Kube, Object, RefusedError

_DEVICE = re.compile(
    r"(?<![\w./-])(?:(?P<pool>[a-z0-9.-]+)/)?(?P<device>gpu-[0-9a-f]{8}-[0-9a-f-]{27})"
    r"(?: on (?P<node>[a-z0-9.-]+))?"
)
_FEW_NODES = 24

full_names_option = click.option(
    "--full-names", is_flag=True, help="Name GPUs as Kubernetes does, by their UUIDs."
)


class GpuNames:
    """The short names of all GPUs in some ResourceSlices of dray's driver."""

    def __init__(self, slices: Iterable[Object] = ()) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._by_device: dict[str, str] = {}
        for pool, devices in _devices_by_pool(slices).items():
            for number, (_, device, node) in enumerate(sorted(devices)):
                self._names[pool, device] = f"{node}/gpu-{number}"
                self._by_device[device] = f"{node}/gpu-{number}"

    @property
    def known(self) -> list[str]:
        """All short names, sorted by node and number."""
        return sorted(
            self._by_device.values(), key=lambda name: (name.rpartition("-")[0], len(name), name)
        )

    def of(self, pool: str, device: str) -> str:
        """The short name of a device in a DRA pool; ``pool/device`` if no slice has the device."""
        return self._names.get((pool, device), f"{pool}/{device}")

    def shortened(self, text: str) -> str:
        """A text with short names in place of the names in Kubernetes."""
        return _DEVICE.sub(self._short, text)

    def _short(self, match: re.Match[str]) -> str:
        short = self._by_device.get(match["device"])
        if short is None:
            return match[0]
        node = match["node"]
        return short if node is None or short.startswith(f"{node}/") else f"{short} on {node}"


async def names_in(kube: Kube, text: str, node: str = "") -> GpuNames:
    """The short names of the GPUs that a text names; none if this user may not list slices.

    Reads the slices of their nodes, or all slices if there are many nodes. ``node``: the node of
    GPUs whose node the text does not name.
    """
    nodes = {match["node"] or match["pool"] or node for match in _DEVICE.finditer(text)}
    try:
        if "" in nodes or len(nodes) > _FEW_NODES:
            return GpuNames((await kube.list(SLICES)).objects)
        selectors = [f"spec.nodeName={node}" for node in sorted(nodes)]
        lists = [await kube.list(SLICES, field_selector=selector) for selector in selectors]
    except RefusedError:
        return GpuNames()
    return GpuNames(one for listed in lists for one in listed.objects)


def newest_slices(slices: Iterable[Object]) -> list[Object]:
    """The slices of dray's driver with the newest generation of their DRA pool."""
    ours = [one for one in slices if one["spec"].get("driver") == DRIVER]
    newest: dict[str, int] = {}
    for one in ours:
        pool = one["spec"]["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), int(pool.get("generation", 0)))
    return [
        one
        for one in ours
        if int(one["spec"]["pool"].get("generation", 0)) == newest[one["spec"]["pool"]["name"]]
    ]


def attributes_of(device: Object) -> dict[str, str]:
    """The attributes of a device in a slice, as texts."""
    return {
        name: str(next(iter(value.values())))
        for name, value in (device.get("attributes") or {}).items()
        if value
    }


def _devices_by_pool(slices: Iterable[Object]) -> dict[str, list[tuple[str, str, str]]]:
    """PCI address, name and node of each device, by DRA pool."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for one in newest_slices(slices):
        pool = one["spec"]["pool"]["name"]
        found.setdefault(pool, []).extend(_addresses(one))
    return found


def _addresses(one: Object) -> Iterator[tuple[str, str, str]]:
    spec = one["spec"]
    node = spec.get("nodeName") or spec["pool"]["name"]
    for device in spec.get("devices") or ():
        # A device without an address comes last.
        address = attributes_of(device).get(PCI_BUS_ID, "~")
        yield address, device["name"], node
