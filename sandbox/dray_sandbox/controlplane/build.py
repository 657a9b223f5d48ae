"""The control plane's multicall binary, with one link per program."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dray.api.errors import InvalidInputError
from dray_sandbox.golang import program as golang
from dray_sandbox.golang import toolchain
from dray_sandbox.golang.program import GoProgram
from dray_sandbox.paths import checkout

_PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl")
MINORS = ("1.34", "1.35", "1.36", "1.37")
DEFAULT_MINOR = "1.36"
MINOR_VARIABLE = "DRAY_KUBERNETES"
"""The minor that is built and run; unset: the default one."""
_FILE = "k8s"


@dataclass(frozen=True, slots=True)
class GoBinary:
    """The multicall binary, which selects its program by the name of the link."""

    version: str
    """Kubernetes' version, such as ``1.36.3``."""
    directory: Path

    def program(self, name: str) -> str:
        """The path of one of PROGRAMS."""
        return str(self.directory / name)


def module_directory() -> Path:
    """The Go module of the control plane in the source tree."""
    return checkout() / "tests" / "conformance" / "controlplane"


def wanted_minor() -> str:
    """The minor of Kubernetes that ``DRAY_KUBERNETES`` names, else the default one.

    Raises:
        InvalidInputError: there is no module file for it.
    """
    return known_minor(os.environ.get(MINOR_VARIABLE) or DEFAULT_MINOR)


def known_minor(minor: str) -> str:
    """``minor``, if there is a module file for it. Raises InvalidInputError."""
    if minor not in MINORS:
        known = ", ".join(MINORS)
        raise InvalidInputError(f"Kubernetes {minor!r} can't be built: choose one of {known}")
    return minor


def control_plane(module: Path, minor: str = DEFAULT_MINOR) -> GoProgram:
    """The program in ``module``, in the patch version that ``minor``'s module file pins."""
    mod_file = "go.mod" if minor == DEFAULT_MINOR else f"kubernetes-{minor}.mod"
    version = golang.required_version(module, mod_file, "k8s.io/kubernetes")
    return GoProgram(
        module=module,
        version=version,
        title=f"Kubernetes {version}",
        takes="about 4 min on 2 cores",
        cache="controlplane",
        file=_FILE,
        mod_file=mod_file,
        variables=golang.kubernetes_variables(version),
    )


async def build(progress: Callable[[str], None], minor: str | None = None) -> GoBinary:
    """The binary of ``minor`` (else of ``wanted_minor()``), built now if the cache has none.

    Raises:
        BuildError, ToolchainError: the cause, and what to do.
        InvalidInputError: the minor is unknown.
    """
    program = control_plane(module_directory(), known_minor(minor) if minor else wanted_minor())
    binary = await golang.build(program, progress)
    golang.link_programs(binary, _PROGRAMS)
    return GoBinary(program.version, binary.parent)


def find_built() -> GoBinary | None:
    """The binary of ``wanted_minor()`` in the user's cache, intact or not; None: never built."""
    program = control_plane(module_directory(), wanted_minor())
    directory = program.directory(toolchain.find_toolchain(program.oldest_go()).version)
    return GoBinary(program.version, directory) if (directory / _FILE).exists() else None


def find_kubectl() -> str | None:
    """The kubectl on PATH, else the control plane's if it has been built, else None."""
    if on_path := shutil.which("kubectl"):
        return on_path
    built = find_built()
    return built.program("kubectl") if built else None
