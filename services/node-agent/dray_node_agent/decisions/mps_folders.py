"""Folders on the node that MPS daemons share with the programs on their GPUs."""

from typing import Final

FOLDER: Final = "/run/dray/mps"
"""One folder per device; a reboot empties it."""
PIPES: Final = "/tmp/nvidia-mps"
"""Where a container sees the daemon's pipes: CUDA looks there if no variable says otherwise."""


def folder_of(device: str) -> str:
    """A device's folder, with the daemon's pipes and log."""
    return f"{FOLDER}/{device}"


def pipes_of(device: str) -> str:
    """The pipes of a device's daemon."""
    return f"{folder_of(device)}/pipe"


def shared_memory_of(device: str) -> str:
    """The ``/dev/shm`` of a device's daemon and of all its clients."""
    return f"{folder_of(device)}/shm"
