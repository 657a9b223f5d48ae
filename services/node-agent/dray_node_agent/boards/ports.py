"""What the node-agent needs of a board of cards."""

from dataclasses import dataclass
from typing import Protocol

from dray.domain.errors import TemporaryError


class BoardUnavailableError(TemporaryError):
    """The cards can't be read now: driver missing, reloading, or a card fell off the bus."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as the driver reports it."""

    uuid: str
    """As NVML writes it, such as ``GPU-1b2c…``."""
    product: str
    """Full product name, such as ``NVIDIA A100-SXM4-80GB``."""
    memory_bytes: int
    cores: int = 0
    """CUDA cores, 0 where unknown; only for cards of an unknown model."""
    max_sm_clock_mhz: int = 0
    pci_bus_id: str = ""
    """As Linux writes it, such as ``0000:3b:00.0``."""
    pcie_root: str = ""
    """As Kubernetes writes it, such as ``pci0000:3a``."""
    numa_node: int | None = None
    nvlink_domain: str = ""
    """Equal for the node's cards that NVLink joins; empty: it joins the card to none."""
    device_nodes: tuple[str, ...] = ()
    """Device files a container needs; none for simulated cards."""
    trouble: str = ""
    """Why the card must not be given out, or empty while it is well."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All cards at one moment, in the board's order."""

    cards: tuple[Card, ...]
    driver_version: str = ""


class Board(Protocol):
    """Cards. ``read`` blocks for milliseconds: call it in a thread."""

    def read(self) -> Reading:
        """The cards and their health now. Raises BoardUnavailableError."""

    def close(self) -> None:
        """Let go of the driver. Repeating it is harmless."""
