"""Helm, built from its Go module."""

from collections.abc import Callable
from pathlib import Path

from dray_sandbox.golang import program as golang
from dray_sandbox.golang.program import GoProgram
from dray_sandbox.paths import checkout

_MODULE = "helm.sh/helm/v4"


def helm_program() -> GoProgram:
    """In the version that the module file pins."""
    module = checkout() / "tests" / "conformance" / "helm"
    version = golang.required_version(module, "go.mod", _MODULE)
    return GoProgram(
        module=module,
        version=version,
        title=f"Helm {version}",
        takes="about 2 min on 2 cores",
        cache="helm",
        file="helm",
        variables=(f"{_MODULE}/internal/version.version=v{version}",),
    )


async def build_helm(progress: Callable[[str], None]) -> Path:
    """Its path; built now if the cache has none. Raises BuildError, ToolchainError."""
    return await golang.build(helm_program(), progress)
