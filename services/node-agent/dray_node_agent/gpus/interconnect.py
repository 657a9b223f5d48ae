"""How GPUs are joined to each other and to the machine: what NVLink and PCIe tell.

Kubernetes writes PCI addresses as Linux does (``0000:3b:00.0``), NVML with eight digits in front.
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
    """GPUs by PCI address with the far ends of their links: the domain of each that NVLink joins
    to another one, directly or over switches and other GPUs; the least address names it."""
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
