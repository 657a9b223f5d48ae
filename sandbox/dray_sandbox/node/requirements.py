"""Requirements of real nodes on this machine, each with a sentence that says what to do."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dray.api.errors import PermanentError
from dray_sandbox.node.boot import CHANGED_IN_MEMORY
from dray_sandbox.node.cgroups import hierarchies

_COMMANDS = {
    "runc": "runc",
    "nft": "nftables",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
"""Programs that nodes run, and the Debian packages that contain them."""
_CNI_FOLDERS = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
_CNI_PLUGINS = ("ptp", "host-local", "portmap", "loopback")
_BUSYBOX = Path("/bin/busybox")
_CAP_SYS_ADMIN, _CAP_SYS_RESOURCE = 21, 24
_HIDDEN = ("/run", "/var/run", *CHANGED_IN_MEMORY)
"""Folders of this machine that a node replaces."""
_ELF_INTERPRETER = b"ld-linux"


class CannotRunNodesError(PermanentError):
    """This machine can't run real nodes."""


@dataclass(frozen=True, slots=True)
class MachinePrograms:
    """Paths of this machine's programs that nodes run."""

    cni_plugins: Path
    """The folder with the CNI plugins."""
    busybox: Path
    """A static busybox, for images."""


def check_machine(directory: Path) -> MachinePrograms:
    """The machine's programs for nodes whose files are in ``directory``.

    Raises:
        CannotRunNodesError: everything that is missing, and what to do.
    """
    cni_plugins = _cni_plugins()
    missing = [*_rights(), *_kernel(), *_programs(), *_places(directory)]
    if missing or cni_plugins is None:
        raise CannotRunNodesError(
            "this machine can't run real nodes: " + "; ".join(missing) + "; without them, "
            "`dray up --kubelet simulated` has simulated kubelets"
        )
    return MachinePrograms(cni_plugins, _BUSYBOX)


def missing_packages() -> list[str]:
    """Debian packages of the programs that nodes run and this machine lacks."""
    packages = {package for name, package in _COMMANDS.items() if shutil.which(name) is None}
    if _cni_plugins() is None:
        packages.add("containernetworking-plugins")
    if not _is_static(_BUSYBOX):
        packages.add("busybox-static")
    return sorted(packages)


def lowers_oom_scores() -> bool:
    """Whether this process may lower the OOM score of others."""
    return _has_capability(_CAP_SYS_RESOURCE)


def _rights() -> list[str]:
    if not sys.platform.startswith("linux"):
        return [f"they need Linux, and this is {sys.platform}"]
    if os.geteuid() != 0 or not _has_capability(_CAP_SYS_ADMIN):
        return ["they need root with CAP_SYS_ADMIN: run this as root, outside of a container"]
    return []


def _kernel() -> list[str]:
    if not sys.platform.startswith("linux"):
        return []
    checks: Sequence[tuple[Callable[[], bool], str]] = (
        (_has_overlay, "the kernel has no overlayfs: `modprobe overlay`"),
        (
            _has_cgroups,
            "no cgroup hierarchy is mounted and writable: mount one, or leave the container",
        ),
    )
    return [sentence for holds, sentence in checks if not holds()]


def _has_overlay() -> bool:
    return "\toverlay\n" in Path("/proc/filesystems").read_text()


def _has_cgroups() -> bool:
    return any(os.access(root, os.W_OK) for root in hierarchies())


def _programs() -> list[str]:
    packages = " ".join(missing_packages())
    if not packages:
        return []
    return [f"programs are missing: `make node-packages` installs {packages} with apt-get"]


def _places(directory: Path) -> list[str]:
    inside = [folder for folder in _HIDDEN if directory.is_relative_to(folder)]
    return [f"{directory} is below {inside[0]}, which nodes replace: move it"] if inside else []


def _cni_plugins() -> Path | None:
    """The folder that has all CNI plugins."""
    complete = (
        folder for folder in _CNI_FOLDERS if all((folder / name).exists() for name in _CNI_PLUGINS)
    )
    return next(complete, None)


def _is_static(program: Path) -> bool:
    """Whether the program needs no library in an image."""
    return program.is_file() and _ELF_INTERPRETER not in program.read_bytes()[:4096]


def _has_capability(number: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False
