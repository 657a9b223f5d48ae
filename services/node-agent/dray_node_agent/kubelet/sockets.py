"""Paths of the sockets on which the kubelet finds and calls the agent."""

import hashlib
import os
import stat
from pathlib import Path

from dray.api.errors import InvalidInputError

LONGEST_PATH = 107
"""``sockaddr_un.sun_path`` has 108 bytes, one of them for the final NUL."""


def endpoint_socket(plugins_dir: Path, driver: str) -> Path:
    """Socket of the plugin's own services. Raises InvalidInputError if the path is too long."""
    return _first_that_fits(
        plugins_dir / driver / "dra.sock", plugins_dir / _short(driver) / "dra.sock"
    )


def registration_socket(registry_dir: Path, driver: str) -> Path:
    """Socket by which the kubelet finds the plugin; any name ending in ``.sock`` will do."""
    return _first_that_fits(
        registry_dir / f"{driver}-reg.sock", registry_dir / f"{_short(driver)}-reg.sock"
    )


def remove_stale(path: Path) -> None:
    """Remove the socket of an earlier process; never another kind of file.

    Call it with the state folder locked: then no other agent serves there.

    Raises:
        InvalidInputError: the path is another kind of file.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise InvalidInputError(f"{path} is in the way and no socket: remove it")
    path.unlink(missing_ok=True)


def _first_that_fits(*paths: Path) -> Path:
    for path in paths:
        if len(os.fsencode(path)) <= LONGEST_PATH:
            return path
    raise InvalidInputError(
        f"socket path {paths[-1]} has {len(os.fsencode(paths[-1]))} bytes, at most "
        f"{LONGEST_PATH} are possible: choose a shorter folder"
    )


def _short(driver: str) -> str:
    return hashlib.sha256(driver.encode()).hexdigest()[:8]
