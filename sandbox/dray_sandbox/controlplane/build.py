"""Build the control plane's multicall binary once, into the user's cache.

The cache key is the Kubernetes version and a hash of the module's main.go and go.sum and of
the Go version. A lock file keeps two runs from building twice; the binary appears under its
name only when it is whole.
"""

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dray.domain.errors import PermanentError
from dray_sandbox.controlplane import toolchain
from dray_sandbox.places import checkout, user_cache
from dray_sandbox.processes import dying_with_this_process

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl")
_PROGRESS_EVERY_S = 5.0
_MOST_JOBS = 8
_TAIL_LINES = 20


class BuildError(PermanentError):
    """The control plane could not be built."""


@dataclass(frozen=True, slots=True)
class Binary:
    """The multicall binary, which takes its program from the name it is called by."""

    version: str
    """Of Kubernetes, such as ``1.36.3``."""
    directory: Path

    def program(self, name: str) -> str:
        """The path of one of PROGRAMS."""
        return str(self.directory / name)


def module_directory() -> Path:
    """Where the Go module of the control plane stands in the source tree."""
    return checkout() / "tests" / "conformance" / "controlplane"


def kubernetes_version(module: Path) -> str:
    """The version of Kubernetes that go.mod pins."""
    match = re.search(r"k8s\.io/kubernetes v(\S+)", (module / "go.mod").read_text())
    if match is None:
        raise BuildError(f"{module / 'go.mod'} requires no k8s.io/kubernetes")
    return match[1]


def go_version(module: Path) -> str:
    """The oldest Go that builds the module."""
    match = re.search(r"^go (\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    return match[1] if match else "1.0"


def place(module: Path, go: str) -> Path:
    """The cache folder of the binary that ``go`` builds from ``module``."""
    digest = hashlib.sha256()
    for name in ("main.go", "go.sum"):
        digest.update((module / name).read_bytes())
    digest.update(go.encode())
    name = f"{kubernetes_version(module)}-{digest.hexdigest()[:12]}"
    return user_cache() / "controlplane" / name


async def build(progress: Callable[[str], None]) -> Binary:
    """The binary, built now if the cache has none.

    Raises:
        BuildError, ToolchainError: what went wrong, and what to do.
    """
    module = module_directory()
    version = kubernetes_version(module)
    tools = toolchain.find(go_version(module))
    directory = place(module, tools.version)
    binary = directory / "k8s"
    if not binary.exists():
        directory.mkdir(parents=True, exist_ok=True)
        async with _alone(directory / "lock", progress):
            if not binary.exists():
                go = await asyncio.to_thread(toolchain.install, tools, progress)
                await _compile(go, module, version, binary, progress)
    _link_programs(directory)
    return Binary(version, directory)


def find_kubectl() -> str | None:
    """A kubectl: PATH's, else the control plane's own if it has been built, else None."""
    if on_path := shutil.which("kubectl"):
        return on_path
    module = module_directory()
    directory = place(module, toolchain.find(go_version(module)).version)
    return str(directory / "kubectl") if (directory / "k8s").exists() else None


@asynccontextmanager
async def _alone(path: Path, progress: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold the lock on ``path``, waiting for another run that builds."""
    with path.open("w") as file:
        waiting = _Ticker(progress, "another run builds the control plane; waiting")
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting.tick()
                await asyncio.sleep(0.5)
            else:
                break
        yield


async def _compile(
    go: str, module: Path, version: str, binary: Path, progress: Callable[[str], None]
) -> None:
    unfinished = binary.with_name(f"k8s.{os.getpid()}")
    log = binary.with_name("build.log")
    progress(f"building Kubernetes {version} with {go}: once, about 4 min on 2 cores")
    try:
        with log.open("wb") as output:
            process = _start_compiler(_command(go, version, unfinished), module, output)
            code = await _finished(process, _Ticker(progress, f"building Kubernetes {version}"))
        if code != 0:
            raise BuildError(_failure(version, code, log))
        unfinished.replace(binary)
    finally:
        unfinished.unlink(missing_ok=True)


def _start_compiler(command: list[str], module: Path, output: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        dying_with_this_process(command),
        cwd=module,
        env=os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _command(go: str, version: str, output: Path) -> list[str]:
    minor = version.split(".")[1]
    base = "k8s.io/component-base/version"
    flags = (
        "-s -w",
        f"-X {base}.gitVersion=v{version}",
        f"-X {base}.gitMajor=1",
        f"-X {base}.gitMinor={minor}",
    )
    jobs = str(min(os.cpu_count() or 1, _MOST_JOBS))
    return [go, "build", "-p", jobs, "-trimpath", "-ldflags", " ".join(flags), "-o", str(output)]


async def _finished(process: subprocess.Popen[bytes], ticker: "_Ticker") -> int:
    try:
        while (code := process.poll()) is None:
            ticker.tick()
            await asyncio.sleep(0.2)
        return code
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _failure(version: str, code: int, log: Path) -> str:
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
    return (
        f"building Kubernetes {version} failed with exit code {code}: check that the Go modules "
        f"can be downloaded (`go env GOPROXY` says from where) and that 5 GB of disk are free; "
        f"the end of {log}:\n{tail}"
    )


def _link_programs(directory: Path) -> None:
    """Give each program its own name, so that process lists tell them apart."""
    for name in PROGRAMS:
        link = directory / name
        if not link.is_symlink():
            temporary = directory / f"{name}.{os.getpid()}"
            temporary.symlink_to("k8s")
            temporary.replace(link)


class _Ticker:
    """Says every few seconds what is going on and for how long."""

    def __init__(self, progress: Callable[[str], None], what: str) -> None:
        self._progress = progress
        self._what = what
        self._began = self._said = time.monotonic()

    def tick(self) -> None:
        """Say it if it was not said for a while."""
        now = time.monotonic()
        if now - self._said >= _PROGRESS_EVERY_S:
            self._said = now
            self._progress(f"{self._what}: {now - self._began:.0f} s so far")
