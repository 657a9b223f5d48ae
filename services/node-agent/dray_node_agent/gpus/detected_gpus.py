"""The GPUs of a node that may have none: NVML is opened once the PCI bus has a GPU."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dray_node_agent.decisions.gpus import GpuSnapshot, GpuUsage
from dray_node_agent.gpus.source import GpuSource

_PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
LIBRARY: Final = "libnvidia-ml.so.1"
_NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"
"""The first byte of the class of display controllers, including 3D controllers."""
_LIBRARY_FOLDERS: Final = ("usr/lib/*-linux-gnu", "usr/lib64", "usr/lib", "lib64")


class DetectedGpus:
    """The GPUs of a node; a node without an NVIDIA GPU needs no driver. If there is a GPU, a
    missing driver is an error, and each read looks for the driver again."""

    def __init__(
        self, open_nvml: Callable[[], GpuSource], pci_devices: Path = _PCI_DEVICES
    ) -> None:
        self._open_nvml = open_nvml
        self._pci_devices = pci_devices
        self._nvml: GpuSource | None = None
        self._on_event: Callable[[], None] = lambda: None

    def read(self) -> GpuSnapshot:
        """The GPUs and their health now. Raises GpusUnavailableError."""
        if self._nvml is None:
            if not _has_gpu(self._pci_devices):
                return GpuSnapshot(())
            self._nvml = self._open_nvml()
            self._nvml.listen(self._on_event)
        return self._nvml.read()

    def read_usage(self) -> tuple[GpuUsage, ...]:
        """How much of each GPU is used. Raises GpusUnavailableError."""
        return () if self._nvml is None else self._nvml.read_usage()

    def set_time_slice(self, uuid: str, number: int) -> None:
        """Set a card's time slice. Raises TimeSliceError."""
        if self._nvml is not None:
            self._nvml.set_time_slice(uuid, number)

    def listen(self, on_event: Callable[[], None]) -> None:
        """Have ``on_event`` called when a GPU's health may have changed."""
        self._on_event = on_event
        if self._nvml is not None:
            self._nvml.listen(on_event)

    def close(self) -> None:
        """Release the driver."""
        if self._nvml is not None:
            self._nvml.close()


def _has_gpu(pci_devices: Path = _PCI_DEVICES) -> bool:
    """Whether an NVIDIA GPU is on the PCI bus, with or without a driver."""
    return any(
        _text(device / "vendor") == _NVIDIA and _text(device / "class").startswith(_DISPLAY)
        for device in pci_devices.glob("*")
    )


def load_library(driver_root: Path) -> None:
    """Load NVML's library from the driver that is installed below ``driver_root``, such as the
    node's file system. pynvml, which knows only the library's name, then finds it loaded. Does
    nothing if there is no such library.

    The folder is not searched for other libraries: that would find the host's C library.
    """
    for folder in _LIBRARY_FOLDERS:
        for library in driver_root.glob(f"{folder}/{LIBRARY}"):
            ctypes.CDLL(str(library))
            return


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
