"""What dray's node fit reads: cpu, memory, pods, selector, affinity, taints, unschedulable.

Each predicate follows kube-scheduler's plugin of the same purpose (NodeResourcesFit,
NodeAffinity, TaintToleration, NodeUnschedulable). Other needs take the gated path.
"""

from collections.abc import Iterator

from dray.domain.devices import Taint
from dray.domain.names import DEDICATED_TAINT
from dray.domain.pods import Node, NodeExpression, NodeTerm, PodNeeds
from dray_allocator.node.holds import Held

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def fits(needs: PodNeeds, node: Node, held: Held, *, alone: bool = False) -> bool:
    """Whether nothing of the node keeps the pod away."""
    return next(failures(needs, node, held, alone=alone), None) is None


def failures(needs: PodNeeds, node: Node, held: Held, *, alone: bool = False) -> Iterator[str]:
    """Every predicate that fails, as a person knows it.

    ``alone``: the pod's binder must be the only one on the node. Until the node shows its pool's
    taint, kube-scheduler may bind there what nobody has counted yet.
    """
    if not node.ready:
        yield "node ready"
    if alone and not node.dedicated:
        yield f"node taint {DEDICATED_TAINT}={node.pool}:NoSchedule"
    if node.unschedulable and not _tolerated(needs, UNSCHEDULABLE):
        yield "node schedulable"
    yield from _resources(needs, node, held)
    if any(node.labels.get(key) != value for key, value in needs.node_selector.items()):
        yield "node selector"
    if needs.node_terms and not any(_term(term, node) for term in needs.node_terms):
        yield "node affinity"
    for taint in node.taints:
        if taint.effect in _KEEPS_AWAY and taint != UNSCHEDULABLE and not _tolerated(needs, taint):
            yield f"toleration of node taint {taint.key}={taint.value}:{taint.effect}"


def _resources(needs: PodNeeds, node: Node, held: Held) -> Iterator[str]:
    if needs.cpu_milli and needs.cpu_milli + node.used_cpu_milli + held.cpu_milli > node.cpu_milli:
        yield f"free cpu ≥ {needs.cpu_milli}m"
    if (
        needs.memory_bytes
        and needs.memory_bytes + node.used_memory_bytes + held.memory_bytes > node.memory_bytes
    ):
        yield f"free memory ≥ {needs.memory_bytes} bytes"
    if node.used_pods + held.pods + 1 > node.pods:
        yield "free pod slots ≥ 1"


def _tolerated(needs: PodNeeds, taint: Taint) -> bool:
    return any(toleration.tolerates(taint) for toleration in needs.tolerations)


def _term(term: NodeTerm, node: Node) -> bool:
    """A term without expressions matches nothing, as in Kubernetes."""
    return bool(term) and all(_expression(one, node) for one in term)


def _expression(expression: NodeExpression, node: Node) -> bool:
    seen = {"metadata.name": node.name} if expression.is_field else node.labels
    return expression.holds(seen)
