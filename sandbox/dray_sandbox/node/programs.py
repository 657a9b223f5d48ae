"""The programs of a node, built from their Go modules: kubelet, kube-proxy, CoreDNS, containerd."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from dray_sandbox.controlplane.build import DEFAULT_MINOR, known_minor, wanted_minor
from dray_sandbox.golang import program as golang
from dray_sandbox.golang.program import GoProgram
from dray_sandbox.paths import checkout

_LINKS = ("kubelet", "kube-proxy", "coredns")
_CONTAINERD = "github.com/containerd/containerd/v2"


@dataclass(frozen=True, slots=True)
class NodePrograms:
    """Paths of the programs."""

    kubelet: str
    kube_proxy: str
    coredns: str
    containerd: str
    shim: str
    """containerd-shim-runc-v2, which containerd finds by this name."""
    pause: str
    """The first process of a pod's sandbox."""


def _node_program(minor: str = DEFAULT_MINOR) -> GoProgram:
    """kubelet, kube-proxy and CoreDNS, in the patch version that ``minor``'s module file pins."""
    module = checkout() / "tests" / "conformance" / "node"
    mod_file = "go.mod" if minor == DEFAULT_MINOR else f"kubernetes-{minor}.mod"
    version = golang.required_version(module, mod_file, "k8s.io/kubernetes")
    return GoProgram(
        module=module,
        version=version,
        title=f"the kubelet of Kubernetes {version}",
        takes="about 4 min on 2 cores, or one after the control plane",
        cache="node",
        file="node",
        mod_file=mod_file,
        variables=golang.kubernetes_variables(version),
    )


def _pause_program() -> GoProgram:
    """The program that does nothing but hold namespaces."""
    return replace(
        _node_program(), title="pause", takes="seconds", file="pause", package="pause", variables=()
    )


def _containerd_program() -> GoProgram:
    """containerd, without snapshotters that need their own file system."""
    module = checkout() / "tests" / "conformance" / "containerd"
    version = golang.required_version(module, "go.mod", _CONTAINERD)
    return GoProgram(
        module=module,
        version=version,
        title=f"containerd {version}",
        takes="about 2 min on 2 cores",
        cache="containerd",
        file="containerd",
        tags=("no_btrfs", "no_devmapper", "no_zfs"),
        variables=(f"{_CONTAINERD}/version.Version=v{version}",),
    )


def _shim_program() -> GoProgram:
    """containerd's shim for runc."""
    return replace(
        _containerd_program(),
        title="containerd's shim",
        takes="seconds after containerd",
        file="containerd-shim-runc-v2",
        package="shim",
    )


async def build_programs(progress: Callable[[str], None], minor: str | None = None) -> NodePrograms:
    """The programs for ``minor`` (else ``wanted_minor()``), built now if the cache has none.

    Raises:
        BuildError, ToolchainError: the cause, and what to do.
        InvalidInputError: the minor is unknown.
    """
    minor = known_minor(minor) if minor else wanted_minor()
    node = await golang.build(_node_program(minor), progress)
    golang.link_programs(node, _LINKS)
    kubelet, kube_proxy, coredns = (str(node.with_name(name)) for name in _LINKS)
    return NodePrograms(
        kubelet,
        kube_proxy,
        coredns,
        containerd=str(await golang.build(_containerd_program(), progress)),
        shim=str(await golang.build(_shim_program(), progress)),
        pause=str(await golang.build(_pause_program(), progress)),
    )
