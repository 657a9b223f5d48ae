"""Helm, built from its Go module."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from dray_sandbox.golang import program as golang
from dray_sandbox.golang.program import GoProgram
from dray_sandbox.paths import checkout

NEWEST: Final = 4
_MODULES: Final = {3: ("helm3", "helm.sh/helm/v3/cmd/helm"), 4: ("helm", "")}
"""By Helm's major version: the module in ``tests/conformance``, and its tool. Helm 4's command can
be imported, Helm 3's can't."""


def helm_program(major: int = NEWEST) -> GoProgram:
    """Helm in the version that the module file pins."""
    folder, tool = _MODULES[major]
    module = checkout() / "tests" / "conformance" / folder
    path = f"helm.sh/helm/v{major}"
    version = golang.required_version(module, "go.mod", path)
    return GoProgram(
        module=module,
        version=version,
        title=f"Helm {version}",
        takes="about 2 min on 2 cores",
        cache="helm",
        file="helm",
        variables=(f"{path}/internal/version.version=v{version}",),
        tool=tool,
    )


async def build_helm(progress: Callable[[str], None], major: int = NEWEST) -> Path:
    """The binary's path; built now if the cache has none. Raises BuildError, ToolchainError."""
    return await golang.build(helm_program(major), progress)
