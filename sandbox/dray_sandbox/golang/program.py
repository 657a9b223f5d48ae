"""Build a Go program once, into the user's cache.

The cache key is a hash of the module's sources, of its go.sum, of the build tags and of the Go
version. A lock file keeps two runs from building twice. A binary is checked whenever it is asked
for: one that is not whole is built anew, and never run.
"""

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dray_sandbox.golang import toolchain
from dray_sandbox.golang.cache import alone, is_whole, keep, workshop
from dray_sandbox.golang.failures import BuildError, build_failure, cache_errors
from dray_sandbox.golang.program_run import run
from dray_sandbox.golang.progress import Ticker, go_progress
from dray_sandbox.paths import user_cache

_MOST_JOBS = 8


@dataclass(frozen=True, slots=True)
class GoProgram:
    """What is built, from what, and where it is kept."""

    module: Path
    """The folder of the Go module."""
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
    package: str = ""
    """The folder of the program's sources below ``module``; empty: the module's own."""

    def directory(self, go: str) -> Path:
        """The cache folder of the binary that Go of version ``go`` builds."""
        digest = hashlib.sha256()
        sum_file = Path(self.mod_file).with_suffix(".sum").name
        sources = sorted((self.module / self.package).glob("*.go"))
        for path in (*sources, self.module / sum_file):
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
    """The binary's path; it is built now if the cache has none that is whole.

    Raises:
        BuildError, ToolchainError: what went wrong, and what to do.
    """
    tools = toolchain.find(program.oldest_go())
    directory = program.directory(tools.version)
    binary = directory / program.file
    with cache_errors(directory):
        if is_whole(binary):
            return binary
        directory.mkdir(parents=True, exist_ok=True)
        async with alone(directory, f"builds {program.title}", progress):
            if not is_whole(binary):
                if binary.exists():
                    progress(f"{binary} is not as it was built, so it is built anew")
                go = await toolchain.install(tools, progress)
                await _compile(go, program, binary, progress)
    return binary


async def _compile(
    go: str, program: GoProgram, binary: Path, progress: Callable[[str], None]
) -> None:
    log = binary.with_name("build.log")
    progress(f"building {program.title} with {go}: once, {program.takes}")
    ticker = Ticker(progress, f"building {program.title}", lambda: go_progress(log))
    with workshop(binary.parent) as work:
        finished = work / program.file
        environment = {
            "CGO_ENABLED": "0",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            "GOTMPDIR": str(work),
        }
        command = _command(go, program, finished)
        code = await run(
            command, log, directory=program.module, environment=environment, tick=ticker.tick
        )
        if code != 0:
            raise build_failure(program.title, code, log)
        keep(finished, binary)


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
    command = [go, "build", "-v", "-p", jobs, "-trimpath", "-buildvcs=false", "-mod=readonly"]
    command += ["-ldflags", " ".join(flags)]
    if program.mod_file != "go.mod":
        command.append(f"-modfile={program.mod_file}")
    if program.tags:
        command += ["-tags", ",".join(program.tags)]
    package = [f"./{program.package}"] if program.package else []
    return [*command, "-o", str(output), *package]
