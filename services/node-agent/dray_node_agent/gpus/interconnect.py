"""How GPUs are connected to each other and to the machine by NVLink and PCIe.

Kubernetes writes PCI addresses as Linux does (``0000:3b:00.0``). NVML writes the first number with
eight digits.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

SWITCH: Final = "switch"
"""The far end of a link to an NVSwitch: all switches of a node make one fabric."""
_ROOT: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_DEVICES: Final = Path("/sys/bus/pci/devices")


def pci_address(bus_id: str) -> str:
    """NVML's bus id as Linux writes it; empty if it is not one."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if rest else ""


def pcie_root(address: str, devices: Path = _DEVICES) -> str:
    """The root complex of a device, such as ``pci0000:3a``; empty if sysfs has none. Kubernetes'
    ``pcieRoot`` has this value (k8s.io/dynamic-resource-allocation, deviceattribute)."""
    parts = (devices / address).resolve().parts if address else ()
    return next((part for part in parts if _ROOT.fullmatch(part)), "")


def numa_node(address: str, devices: Path = _DEVICES) -> int | None:
    """The NUMA node that a device is attached to; None if the machine doesn't say."""
    try:
        number = int((devices / address / "numa_node").read_text()) if address else -1
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None


def nvlink_domains(links: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The domain of each GPU that NVLink connects to another one, directly or through switches and
    other GPUs, by PCI address. A domain is named after its lowest address. ``links``: the far ends
    of each GPU's links."""
    of = {gpu: gpu for gpu in links}

    def first(one: str) -> str:
        while of[one] != one:
            one = of[one]
        return one

    for gpu, ends in links.items():
        for end in ends:
            of.setdefault(end, end)
            of[first(end)] = first(gpu)
    domains: dict[str, list[str]] = {}
    for gpu in links:
        domains.setdefault(first(gpu), []).append(gpu)
    return {gpu: min(gpus) for gpus in domains.values() if len(gpus) > 1 for gpu in gpus}
