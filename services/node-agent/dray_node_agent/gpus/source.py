"""The port to a node's GPUs."""

from typing import Protocol

from dray.api.errors import TemporaryError
from dray_node_agent.decisions.gpus import GpuSnapshot


class GpusUnavailableError(TemporaryError):
    """The GPUs can't be read now: driver missing or reloading, or a GPU fell off the PCIe bus."""


class GpuSource(Protocol):
    """A node's GPUs. ``read`` blocks for milliseconds: call it in a thread."""

    def read(self) -> GpuSnapshot:
        """The GPUs and their health now. Raises GpusUnavailableError."""

    def close(self) -> None:
        """Release the driver. Idempotent."""
