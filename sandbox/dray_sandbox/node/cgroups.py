"""The cgroup of a node, in every hierarchy of this machine.

The kubelet needs it to exist and creates the cgroups of pods below it. Works with cgroups v1, v2
and both (hybrid). A group is a folder directly below the root, such as ``/dray-1f2e3d4c-sim-1``.
Nodes share no other folder, which one node could remove while another is created.
"""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_CPUSET = ("cpuset.cpus", "cpuset.mems")
"""Files that are empty in a new v1 group, which then can't have processes."""
_CONTROLLERS, _ENABLED = "cgroup.controllers", "cgroup.subtree_control"
_POLL_S, _WITHIN_S = 0.02, 10.0


def hierarchies() -> list[Path]:
    """The mount points of this machine's hierarchies; empty: it has no cgroups."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.split()[0] in ("cgroup", "cgroup2"):
            found.append(Path(fields.split()[4]))
    return found


def make_group(group: str) -> None:
    """Create the group in every hierarchy."""
    for root in hierarchies():
        _enable_controllers(root)
        folder = root / group.strip("/")
        folder.mkdir(exist_ok=True)
        for file in _CPUSET:
            if (folder / file).exists() and not (folder / file).read_text().strip():
                (folder / file).write_text((root / file).read_text())


def _enable_controllers(folder: Path) -> None:
    """Cgroups v2: enable all controllers of ``folder`` for the groups below it."""
    if (folder / _CONTROLLERS).exists():
        for name in (folder / _CONTROLLERS).read_text().split():
            with contextlib.suppress(OSError):  # such as cpu, while there are real-time processes
                (folder / _ENABLED).write_text(f"+{name}")


def remove_group(group: str) -> None:
    """Kill all processes in the group and below, and remove it.

    Raises:
        OSError: a process did not end.
    """
    for root in hierarchies():
        _remove_tree(root / group.strip("/"))


def _remove_tree(folder: Path) -> None:
    deadline_s = time.monotonic() + _WITHIN_S
    while folder.exists():
        for group in _deepest_first(folder):
            for process in _processes(group):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            try:
                group.rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline_s:
                    raise
        time.sleep(_POLL_S)


def _deepest_first(folder: Path) -> Iterator[Path]:
    for current, _, _ in os.walk(folder, topdown=False):
        yield Path(current)


def _processes(group: Path) -> list[int]:
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except OSError:  # removed, or without its own processes
        return []
