"""Paths of the sockets on which the kubelet finds and calls the agent.

Each process has its own sockets, so that a new agent serves before the old one ends: the kubelet
calls the connected agent that registered last.
"""

import contextlib
import hashlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

from dray.api.errors import InvalidInputError

_LONGEST_PATH: Final = 107
"""``sockaddr_un.sun_path`` has 108 bytes, one of them for the final NUL."""


def plugin_dir(plugins_dir: Path, driver: str) -> Path:
    """The driver's folder below the kubelet's plugins."""
    longest = plugins_dir / driver / "dra-01234567.sock"
    return plugins_dir / (driver if _fits(longest) else _short(driver))


def endpoint_socket(plugins_dir: Path, driver: str, instance: str) -> Path:
    """Socket of the plugin's own services. Raises InvalidInputError if the path is too long."""
    return _checked(plugin_dir(plugins_dir, driver) / f"dra-{instance}.sock")


def registration_socket(registry_dir: Path, driver: str, instance: str) -> Path:
    """Socket by which the kubelet finds the plugin; its name must only end in ``.sock``.

    Raises InvalidInputError if the path is too long.
    """
    path = registry_dir / f"{driver}-{instance}-reg.sock"
    return _checked(path if _fits(path) else registry_dir / f"{_short(driver)}-{instance}-reg.sock")


def remove_abandoned(plugins_dir: Path, registry_dir: Path, driver: str) -> tuple[Path, ...]:
    """Remove the sockets of the driver that no process serves: those of killed agents and earlier
    releases.

    Raises OSError.
    """
    names = [registry_dir.glob(f"{one}*-reg.sock") for one in (driver, _short(driver))]
    own = plugin_dir(plugins_dir, driver).glob("dra*.sock")
    abandoned = [path for paths in (*names, own) for path in paths if _is_abandoned(path)]
    for path in abandoned:
        path.unlink(missing_ok=True)
    return tuple(abandoned)


def _is_abandoned(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
            try:
                client.connect(str(path))
            except ConnectionRefusedError:
                return True
            except BlockingIOError:
                return False  # its queue is full: somebody listens
    return False


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= _LONGEST_PATH


def _checked(path: Path) -> Path:
    if not _fits(path):
        raise InvalidInputError(
            f"socket path {path} has {len(os.fsencode(path))} bytes, but the limit is "
            f"{_LONGEST_PATH}: choose a shorter folder"
        )
    return path


def _short(driver: str) -> str:
    return hashlib.sha256(driver.encode()).hexdigest()[:8]
