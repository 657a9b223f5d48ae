"""Sets the time slice of a card with ``nvidia-smi``: NVML has no function for it."""

import subprocess
from pathlib import Path
from typing import Final

from dray_node_agent.gpus.source import TimeSliceError

_DEADLINE_S: Final = 8.0


def set_time_slice(uuid: str, number: int, *, root: Path | None = None) -> None:
    """Set the time slice for all programs that start on the card from now on. ``number``: 0
    default, 1 short, 2 medium, 3 long. ``root``: the driver's file system, in which its
    ``nvidia-smi`` runs.

    Raises:
        TimeSliceError: there is no ``nvidia-smi``, or it refuses.
    """
    command = ["nvidia-smi", "compute-policy", "-i", uuid, f"--set-timeslice={number}"]
    if root is not None:
        command = ["chroot", str(root), *command]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TimeSliceError(f"{' '.join(command)}: {error}") from error
    if done.returncode != 0:
        printed = (done.stderr or done.stdout).strip()[:200]
        raise TimeSliceError(f"{' '.join(command)} ended with {done.returncode}: {printed}")
