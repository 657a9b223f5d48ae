"""Paths of local stacks."""

import os
import re
from pathlib import Path

from dray.api.errors import InvalidInputError

FOLDER_VARIABLE = "DRAY_STACKS"
"""Names the folder of all local stacks; default: in the checkout's cache. Tests set their own."""
_SOURCE_VARIABLE = "DRAY_SOURCE"
"""Names the source tree if the package is installed outside it, as in an image."""
_STACK_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_LONGEST_SOCKET_DIRECTORY = 45
"""Unix socket paths have at most 108 bytes; a kubelet's plugin sockets add about 60 bytes."""


def checkout() -> Path:
    """The root of the source tree: from ``_SOURCE_VARIABLE``, else the one this package runs from.

    Raises:
        FileNotFoundError: the package is not in a checkout, so the custom resources and the
            control plane's Go module are missing.
    """
    named = os.environ.get(_SOURCE_VARIABLE)
    root = Path(named) if named else Path(__file__).resolve().parents[2]
    if not (root / "pyproject.toml").is_file():
        raise FileNotFoundError(
            f"the local stack needs dray's source tree, and {root} is not one: "
            "clone the repository and run `make setup` there"
        )
    return root


def stack_directory(name: str) -> Path:
    """The run directory of a local stack, in ``$DRAY_STACKS`` or the checkout's cache folder.

    Raises:
        InvalidInputError: the name could lead out of that folder. Each start empties the directory.
    """
    if _STACK_NAME.fullmatch(name) is None:
        raise InvalidInputError(
            f"name of a stack: {name!r} is not allowed: at most 40 of a-z, 0-9 and '-', "
            "beginning and ending with a letter or digit"
        )
    folder = os.environ.get(FOLDER_VARIABLE)
    return (Path(folder) if folder else checkout() / ".cache" / "dray") / name


def traces_directory(stack: Path) -> Path:
    """The folder of the services' spans, for the stack with that run directory."""
    return stack / "traces"


def user_cache() -> Path:
    """The folder of built programs, shared by all checkouts: ``$XDG_CACHE_HOME/dray``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "dray"


def fits_unix_sockets(directory: Path) -> bool:
    """Whether the paths of a kubelet's sockets below ``directory`` are short enough."""
    return len(str(directory)) <= _LONGEST_SOCKET_DIRECTORY
