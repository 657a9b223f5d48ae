"""The port to a node's GPUs."""

from collections.abc import Callable
from typing import Protocol

from dray.api.errors import TemporaryError
from dray_node_agent.decisions.gpus import GpuSnapshot, GpuUsage


class GpusUnavailableError(TemporaryError):
    """The GPUs can't be read now: driver missing or reloading, or it does not answer."""


class TimeSliceError(TemporaryError):
    """The time slice of a card can't be set."""


class GpuSource(Protocol):
    """A node's GPUs. Methods block: call them in a thread."""

    def read(self) -> GpuSnapshot:
        """The GPUs and their health now. Raises GpusUnavailableError."""

    def read_usage(self) -> tuple[GpuUsage, ...]:
        """How much of each GPU is used. Raises GpusUnavailableError."""

    def set_time_slice(self, uuid: str, number: int) -> None:
        """Set a card's time slice, from 0 (the driver's default) to 3 (the longest). Raises
        TimeSliceError."""

    def listen(self, on_event: Callable[[], None]) -> None:
        """Have ``on_event`` called, in any thread, when a GPU's health may have changed."""

    def close(self) -> None:
        """Release the driver. Idempotent."""
