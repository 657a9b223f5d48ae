"""Where the oracle of each minor of Kubernetes comes from."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dray_sandbox.controlplane.build import control_plane, module_directory
from dray_sandbox.golang import program as golang
from dray_sandbox.golang.program import GoProgram

HERE = Path(__file__).resolve().parent
MINORS = ("1.34", "1.35", "1.36", "1.37")
DEFAULT_MINOR = "1.36"
_TAGS = {"1.34": ("before135", "before136"), "1.35": ("before136",)}
"""Build tags of the minors whose packages lack a name that the sources use."""


def program_of(minor: str) -> GoProgram:
    """The oracle of ``minor``, such as 1.36, in the patch that its module file pins."""
    mod_file = "go.mod" if minor == DEFAULT_MINOR else f"kubernetes-{minor}.mod"
    library = golang.required_version(HERE, mod_file, "k8s.io/dynamic-resource-allocation")
    version = library.replace("0.", "1.", 1)
    return GoProgram(
        module=HERE,
        version=version,
        title=f"the oracle of Kubernetes {minor}",
        takes="about 1 min on 2 cores",
        cache="oracle",
        file="oracle",
        mod_file=mod_file,
        tags=_TAGS.get(minor, ()),
        variables=golang.kubernetes_variables(version),
    )


def node_fit_of(minor: str) -> GoProgram:
    """kube-scheduler's plugins that fit pods to nodes, of ``minor``: a second program of the module
    that the control plane is built from, so that both are of one patch."""
    whole = control_plane(module_directory(), minor)
    return replace(
        whole,
        title=f"the node fit of Kubernetes {minor}",
        takes="about 2 min on 2 cores, or seconds after the control plane",
        cache="oracle",
        file="nodefit",
        package="nodefit",
        tags=(*_TAGS.get(minor, ()), *(("from137",) if minor == "1.37" else ())),
    )


async def build_node_fit(minor: str, progress: Callable[[str], None]) -> Path:
    """The path of the node fit's command.

    Raises:
        BuildError, ToolchainError: what went wrong, and what to do.
    """
    return await golang.build(node_fit_of(minor), progress)


async def build_oracle(minor: str, progress: Callable[[str], None]) -> Path:
    """The path of the oracle's command.

    Raises:
        BuildError, ToolchainError: what went wrong, and what to do.
    """
    return await golang.build(program_of(minor), progress)
