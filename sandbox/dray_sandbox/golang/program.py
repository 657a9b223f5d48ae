"""Builds Go programs into the user's cache.

The cache key is a hash of the module's sources, its go.sum, the build tags and the Go version. A
lock file keeps two runs from building at once. A binary that does not match its hash is built
again and never run.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from dray_sandbox.golang import toolchain
from dray_sandbox.golang.cache import build_directory, cache_lock, install_binary, is_intact
from dray_sandbox.golang.command import Ticker, go_progress, run
from dray_sandbox.golang.failures import BuildError, build_failure, cache_errors
from dray_sandbox.paths import user_cache

_MOST_JOBS = 8


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program's sources and its place in the cache."""

    module: Path
    """The folder of the Go module."""
    version: str
    """The version that the binary reports, such as ``1.36.3``."""
    title: str
    """For messages, such as ``Kubernetes 1.36.3``."""
    takes: str
    """The duration of a cold build, for messages."""
    cache: str
    """The folder below the user's cache."""
    file: str
    """The name of the binary."""
    mod_file: str = "go.mod"
    tags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    """Variables that the linker sets, as ``package.name=value``."""
    package: str = ""
    """The folder of the program's sources below ``module``; empty: the module's folder."""
    tool: str = ""
    """Import path of a program that go.mod names as a tool; there are no sources in ``module``."""

    def directory(self, go: str) -> Path:
        """The cache folder of the binary built by version ``go`` of Go."""
        digest = hashlib.sha256()
        sum_file = Path(self.mod_file).with_suffix(".sum").name
        sources = sorted((self.module / self.package).glob("*.go"))
        for path in (*sources, self.module / sum_file):
            digest.update(path.read_bytes())
        digest.update("".join((go, *self.tags)).encode())
        return user_cache() / self.cache / f"{self.version}-{digest.hexdigest()[:12]}"

    def oldest_go(self) -> str:
        """The oldest Go version that builds the module."""
        match = re.search(r"^go (\S+)", self.mod_text(), re.MULTILINE)
        return match[1] if match else "1.0"

    def mod_text(self) -> str:
        """The content of its go.mod."""
        return (self.module / self.mod_file).read_text()


def kubernetes_variables(version: str) -> tuple[str, ...]:
    """The variables that hold Kubernetes' version, on which its feature defaults depend."""
    base = "k8s.io/component-base/version"
    minor = version.split(".")[1]
    return (f"{base}.gitVersion=v{version}", f"{base}.gitMajor=1", f"{base}.gitMinor={minor}")


def required_version(module: Path, mod_file: str, dependency: str) -> str:
    """The version of ``dependency`` that the module pins, without the ``v``.

    Raises:
        BuildError: it does not require the dependency.
    """
    path = module / mod_file
    match = re.search(rf"{re.escape(dependency)} v(\S+)", path.read_text())
    if match is None:
        raise BuildError(f"{path} does not require {dependency}")
    return match[1]


async def build(program: GoProgram, progress: Callable[[str], None]) -> Path:
    """The binary's path; it is built now unless the cache has an intact one.

    Raises:
        BuildError, ToolchainError: the cause, and what to do.
    """
    tools = toolchain.find_toolchain(program.oldest_go())
    directory = program.directory(tools.version)
    binary = directory / program.file
    with cache_errors(directory):
        if is_intact(binary):
            return binary
        directory.mkdir(parents=True, exist_ok=True)
        async with cache_lock(directory, f"builds {program.title}", progress):
            if not is_intact(binary):
                if binary.exists():
                    progress(f"{binary} does not match its hash: building it again")
                go = await toolchain.install(tools, progress)
                await _compile(go, program, binary, progress)
    return binary


def link_programs(binary: Path, names: Iterable[str]) -> None:
    """Make links next to a multicall binary, which selects its program by the link's name.

    Raises:
        CannotBuildHereError: the cache can't be used.
    """
    with cache_errors(binary.parent):
        for name in names:
            link = binary.with_name(name)
            if not link.is_symlink() or os.readlink(link) != binary.name:
                temporary = binary.with_name(f"{name}.{os.getpid()}")
                temporary.symlink_to(binary.name)
                temporary.replace(link)


async def _compile(
    go: str, program: GoProgram, binary: Path, progress: Callable[[str], None]
) -> None:
    log = binary.with_name("build.log")
    progress(f"building {program.title} with {go}: once, {program.takes}")
    ticker = Ticker(progress, f"building {program.title}", lambda: go_progress(log))
    with build_directory(binary.parent) as work:
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
        install_binary(finished, binary)


def _command(go: str, program: GoProgram, output: Path) -> list[str]:
    flags = ("-s -w", *(f"-X {variable}" for variable in program.variables))
    jobs = str(min(os.cpu_count() or 1, _MOST_JOBS))
    command = [go, "build", "-v", "-p", jobs, "-trimpath", "-buildvcs=false", "-mod=readonly"]
    command += ["-ldflags", " ".join(flags)]
    if program.mod_file != "go.mod":
        command.append(f"-modfile={program.mod_file}")
    if program.tags:
        command += ["-tags", ",".join(program.tags)]
    package = [program.tool] if program.tool else []
    package += [f"./{program.package}"] if program.package else []
    return [*command, "-o", str(output), *package]
