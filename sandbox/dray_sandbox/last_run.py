"""State that the last run of a stack left behind: objects, decision logs, nodes."""

import shutil

from dray.api.errors import PermanentError
from dray_sandbox.layout import ControlPlane
from dray_sandbox.node import machine
from dray_sandbox.paths import stack_directory

NODES_FOLDER = "n"
"""Folder of the nodes; a link if its path is too long for sockets."""


class KeptStateError(PermanentError):
    """The state of the last run belongs to another control plane."""


def kept_control_plane(name: str) -> ControlPlane | None:
    """The control plane whose objects the last run left behind; None: there are no objects."""
    directory = stack_directory(name)
    if (directory / "kubernetes" / "etcd").exists():
        return "real"
    return "sandbox" if (directory / "objects").exists() else None


def remove_leftovers(name: str) -> None:
    """Remove what the last run left behind outside its folder, if it was killed."""
    machine.remove_leftovers(stack_directory(name) / NODES_FOLDER)


def remove_state(name: str) -> None:
    """Remove everything that the last run left behind."""
    nodes = stack_directory(name) / NODES_FOLDER
    if nodes.is_symlink():
        shutil.rmtree(nodes.resolve(), ignore_errors=True)
    shutil.rmtree(stack_directory(name), ignore_errors=True)


def check_kept_state(name: str, control_plane: ControlPlane) -> None:
    """Raises KeptStateError if there are objects of another control plane."""
    kept = kept_control_plane(name)
    if kept not in (None, control_plane):
        raise KeptStateError(
            f"the stack {name!r} had the {kept} control plane in its last run: continue with "
            f"`dray up --keep --control-plane {kept}`, or start without --keep"
        )
