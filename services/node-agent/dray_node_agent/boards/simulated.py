"""Cards that exist only on paper, for machines without a GPU.

Their uuids follow from the node's name, so that a restart finds the same cards. A health file
makes cards sick: one line per card, its index or uuid and a reason (``3 xid-79``).
"""

from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid5

from dray.domain.errors import InvalidInputError
from dray_node_agent.boards.ports import Card, Reading

_NAMESPACE = UUID("3d1f6f4e-9a55-5c0e-8a53-6a1f0c5d7b10")
_GIB = 2**30
_PRODUCTS: dict[str, tuple[str, int]] = {
    "A100": ("NVIDIA A100-SXM4-40GB", 40),
    "H100": ("NVIDIA H100 80GB HBM3", 80),
    "H200": ("NVIDIA H200", 141),
    "B200": ("NVIDIA B200", 180),
    "V100": ("Tesla V100-SXM2-32GB", 32),
    "L40S": ("NVIDIA L40S", 48),
    "L4": ("NVIDIA L4", 24),
    "T4": ("Tesla T4", 16),
    "RTX4090": ("NVIDIA GeForce RTX 4090", 24),
}
_LINKED = ("A100", "H100", "H200", "B200", "V100")
"""On boards that join all cards by NVLink, most of them over switches."""
MODELS = tuple(_PRODUCTS)
"""Models that can be simulated."""


class SimulatedBoard:
    """``count`` equal cards of ``model`` on ``node``: half of them on each of two NUMA nodes, two
    under each PCIe root.

    Raises:
        InvalidInputError: the model is unknown.
    """

    def __init__(self, node: str, model: str, count: int, health_file: Path | None = None) -> None:
        if model not in _PRODUCTS:
            raise InvalidInputError(
                f"model {model!r} can't be simulated: choose one of {', '.join(MODELS)}"
            )
        product, memory_gib = _PRODUCTS[model]
        half = (count + 1) // 2
        self._health_file = health_file
        self._cards = tuple(
            Card(
                uuid=f"GPU-{uuid5(_NAMESPACE, f'{node}/{index}')}",
                product=product,
                memory_bytes=memory_gib * _GIB,
                pci_bus_id=f"0000:{index + 1:02x}:00.0",
                pcie_root=_root(index, half),
                numa_node=0 if index < half else 1,
                nvlink_domain="0000:01:00.0" if model in _LINKED and count > 1 else "",
            )
            for index in range(count)
        )

    def read(self) -> Reading:
        """The cards; those named in the health file are in trouble."""
        sick = self._sick()
        cards = (
            replace(card, trouble=sick.get(card.uuid, sick.get(str(index), "")))
            for index, card in enumerate(self._cards)
        )
        return Reading(tuple(cards), driver_version="simulated")

    def close(self) -> None:
        """Nothing is held."""

    def _sick(self) -> dict[str, str]:
        if self._health_file is None:
            return {}
        try:
            lines = self._health_file.read_text().splitlines()
        except FileNotFoundError:
            return {}
        words = [line.split(maxsplit=1) for line in lines if line.strip()]
        return {entry[0]: entry[1].strip() if len(entry) > 1 else "sick" for entry in words}


def _root(index: int, half: int) -> str:
    numa, within = divmod(index, half)
    return f"pci0000:{numa * 0x80 + within // 2:02x}"
