"""The parts of ``make conformance``: what each proves, and what runs it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Part:
    """One statement about Kubernetes, and its tests or its command."""

    name: str
    title: str
    paths: tuple[str, ...] = ()
    """Of tests, below ``tests``."""
    without: tuple[str, ...] = ()
    """Paths of tests below ``paths`` that belong to another part."""
    command: tuple[str, ...] = ()
    """Instead of tests: a script below ``tests`` and its arguments. It takes ``--k8s MINOR``, exits
    with 0, 1 (differences) or 3 (can't run here), and ends with a line that sums up."""
    asks: str = ""
    """What the command counts, ``pairs`` or ``cases``, as its option for their number is named."""
    needs: tuple[str, ...] = ()
    """Names in `run_builds.BUILDS`: built before the part, besides its control plane."""


_SEEDS: Final = "contract/kubernetes/test_seed_objects.py"
PARTS: Final = (
    Part(
        "contract",
        "Kubernetes answers as dray and the sandbox take it to",
        ("contract/kube", "contract/kubernetes"),
        without=(_SEEDS,),
    ),
    Part("seeds", "What the specification texts show is accepted once converted", (_SEEDS,)),
    Part("path-a", "kube-scheduler allocates in its pools", ("conformance/path_a",)),
    Part("path-b", "dray decides, alone and with kube-scheduler", ("conformance/path_b",)),
    Part("view", "kube-scheduler's own view agrees", ("conformance/view",)),
    Part("rbac", "Each service has the rights it uses, and no other", ("conformance/rbac",)),
    Part(
        "node",
        "The node-agent and a kubelet do the same as with the stand-in",
        ("conformance/kubelet",),
        needs=("node",),
    ),
    Part("limits", "Objects at Kubernetes' limits harm no others", ("conformance/limits",)),
    Part(
        "selectors",
        "Selectors mean what Kubernetes' compiler takes them for",
        command=("conformance/oracle/compare.py",),
        asks="pairs",
        needs=("oracle",),
    ),
    Part(
        "allocation",
        "Offline decisions are those of Kubernetes' allocator",
        command=("conformance/oracle/compare_allocations.py",),
        asks="cases",
        needs=("oracle",),
    ),
    Part(
        "node-fit",
        "Pods go to nodes that kube-scheduler's plugins take for them",
        command=("conformance/oracle/compare_nodes.py",),
        asks="cases",
        needs=("node-fit",),
    ),
    # Last, because the second control plane takes as long to build as the first.
    Part(
        "upgrade",
        "A running stack outlives an upgrade",
        ("conformance/upgrade",),
        needs=("control-plane-before",),
    ),
)
NAMES: Final = tuple(part.name for part in PARTS)
