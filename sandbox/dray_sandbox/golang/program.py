"""Build a Go program once, into the user's cache.

The cache key is a hash of the module's sources, of its go.sum, of the build tags and of the Go
version. A lock file keeps two runs from building twice; the binary appears under its name only
when it is whole.
"""

import asyncio
import fcntl
import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dray.domain.errors import PermanentError
from dray_sandbox.golang import toolchain
from dray_sandbox.places import user_cache
from dray_sandbox.processes import dying_with_this_process

_PROGRESS_EVERY_S = 5.0
_MOST_JOBS = 8
_TAIL_LINES = 20


class BuildError(PermanentError):
    """A Go program could not be built."""


@dataclass(frozen=True, slots=True)
class GoProgram:
    """What is built, from what, and where it is kept."""

    module: Path
    """The folder of the Go sources."""
    kubernetes: str
    """The version of Kubernetes that the binary calls itself, such as ``1.36.3``."""
    title: str
    """For messages, such as ``Kubernetes 1.36.3``."""
    takes: str
    """How long a cold build takes, for a person who waits."""
    cache: str
    """The folder below the user's cache."""
    file: str
    """The name of the binary."""
    mod_file: str = "go.mod"
    tags: tuple[str, ...] = ()

    def directory(self, go: str) -> Path:
        """The cache folder of the binary that Go of version ``go`` builds."""
        digest = hashlib.sha256()
        sum_file = Path(self.mod_file).with_suffix(".sum").name
        for path in (*sorted(self.module.glob("*.go")), self.module / sum_file):
            digest.update(path.read_bytes())
        digest.update("".join((go, *self.tags)).encode())
        return user_cache() / self.cache / f"{self.kubernetes}-{digest.hexdigest()[:12]}"

    def oldest_go(self) -> str:
        """The oldest Go that builds the module."""
        match = re.search(r"^go (\S+)", self.mod_text(), re.MULTILINE)
        return match[1] if match else "1.0"

    def mod_text(self) -> str:
        """What its go.mod says."""
        return (self.module / self.mod_file).read_text()


def required_version(module: Path, mod_file: str, dependency: str) -> str:
    """The version of ``dependency`` that the module pins, without its ``v``.

    Raises:
        BuildError: it requires none.
    """
    path = module / mod_file
    match = re.search(rf"{re.escape(dependency)} v(\S+)", path.read_text())
    if match is None:
        raise BuildError(f"{path} requires no {dependency}")
    return match[1]


async def build(program: GoProgram, progress: Callable[[str], None]) -> Path:
    """The binary's path; it is built now if the cache has none.

    Raises:
        BuildError, ToolchainError: what went wrong, and what to do.
    """
    tools = toolchain.find(program.oldest_go())
    directory = program.directory(tools.version)
    binary = directory / program.file
    if not binary.exists():
        directory.mkdir(parents=True, exist_ok=True)
        async with _alone(program, directory / "lock", progress):
            if not binary.exists():
                go = await asyncio.to_thread(toolchain.install, tools, progress)
                await _compile(go, program, binary, progress)
    return binary


@asynccontextmanager
async def _alone(
    program: GoProgram, path: Path, progress: Callable[[str], None]
) -> AsyncIterator[None]:
    """Hold the lock on ``path``, waiting for another run that builds."""
    with path.open("w") as file:
        waiting = _Ticker(progress, f"another run builds {program.title}; waiting")
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
    go: str, program: GoProgram, binary: Path, progress: Callable[[str], None]
) -> None:
    unfinished = binary.with_name(f"{program.file}.{os.getpid()}")
    log = binary.with_name("build.log")
    progress(f"building {program.title} with {go}: once, {program.takes}")
    try:
        with log.open("wb") as output:
            process = _start_compiler(_command(go, program, unfinished), program.module, output)
            code = await _finished(process, _Ticker(progress, f"building {program.title}"))
        if code != 0:
            raise BuildError(_failure(program.title, code, log))
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


def _command(go: str, program: GoProgram, output: Path) -> list[str]:
    minor = program.kubernetes.split(".")[1]
    base = "k8s.io/component-base/version"
    flags = (
        "-s -w",
        f"-X {base}.gitVersion=v{program.kubernetes}",
        f"-X {base}.gitMajor=1",
        f"-X {base}.gitMinor={minor}",
    )
    jobs = str(min(os.cpu_count() or 1, _MOST_JOBS))
    command = [go, "build", "-p", jobs, "-trimpath", "-ldflags", " ".join(flags)]
    if program.mod_file != "go.mod":
        command.append(f"-modfile={program.mod_file}")
    if program.tags:
        command += ["-tags", ",".join(program.tags)]
    return [*command, "-o", str(output)]


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


def _failure(title: str, code: int, log: Path) -> str:
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
    return (
        f"building {title} failed with exit code {code}: check that the Go modules "
        f"can be downloaded (`go env GOPROXY` says from where) and that 5 GB of disk are free; "
        f"the end of {log}:\n{tail}"
    )


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
