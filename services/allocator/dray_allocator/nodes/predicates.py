"""Whether a node takes a pod, by each of its needs that dray reads.

Each predicate follows kube-scheduler's plugin of the same purpose in Kubernetes 1.36:
NodeResourcesFit, NodePorts, NodeAffinity, TaintToleration and NodeUnschedulable. Other needs take
the gated path. ``make conformance PARTS=node-fit`` asks those plugins the same questions.
"""

from collections.abc import Collection, Iterator

from dray.api.devices import Taint
from dray.api.names import DEDICATED_TAINT
from dray.api.pods import HostPort, Node, NodeExpression, NodeTerm, PodNeeds
from dray.api.quantities import NANO, readable, rounded_down
from dray.reasons import not_enough
from dray_allocator.nodes.assumed_pods import AssumedResources

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
_BYTES = ("memory", "ephemeral-storage")


def fits(
    needs: PodNeeds,
    node: Node,
    held: AssumedResources,
    *,
    alone: bool = False,
    given: Collection[str] = (),
) -> bool:
    """Whether nothing of the node keeps the pod away."""
    return next(failures(needs, node, held, alone=alone, given=given), None) is None


def failures(
    needs: PodNeeds,
    node: Node,
    held: AssumedResources,
    *,
    alone: bool = False,
    given: Collection[str] = (),
) -> Iterator[str]:
    """Every predicate that fails, as a person knows it.

    ``alone``: the pod's binder must be the only one on the node. Until the node shows its pool's
    taint, kube-scheduler may bind there what nobody has counted yet.

    ``given``: extended resources for which kube-scheduler allocates devices of a class, where it
    binds and the node has none of them otherwise.
    """
    if not node.ready:
        yield "not ready"
    if alone and not node.dedicated:
        yield f"node taint {DEDICATED_TAINT}={node.pool}:NoSchedule is missing"
    if node.unschedulable and not _tolerated(needs, UNSCHEDULABLE):
        yield "unschedulable"
    yield from _amounts(needs, node, held)
    if needs.resources:
        yield from _resources(needs, node, held, () if alone else given)
    if needs.ports:
        yield from _ports(needs, (*node.used_ports, *held.ports))
    labels = needs.node_selector
    if labels and any(node.labels.get(key) != value for key, value in labels.items()):
        yield "node selector does not match"
    if needs.node_terms and not any(_term(term, node) for term in needs.node_terms):
        yield "node affinity does not match"
    for taint in node.taints:
        # Kubernetes gives a cordoned node this taint, too: once is enough to say.
        if taint == UNSCHEDULABLE and node.unschedulable:
            continue
        if taint.effect in _BLOCKING_EFFECTS and not _tolerated(needs, taint):
            yield f"node taint {taint.key}={taint.value}:{taint.effect} is not tolerated"


def _amounts(needs: PodNeeds, node: Node, held: AssumedResources) -> list[str]:
    """What every node has: cpu, memory and pod slots."""
    cpu_milli, memory_bytes, found = needs.cpu_milli, needs.memory_bytes, []
    if cpu_milli and cpu_milli + node.used_cpu_milli + held.cpu_milli > node.cpu_milli:
        found.append(not_enough("cpu", written("cpu", cpu_milli)))
    if (
        memory_bytes
        and memory_bytes + node.used_memory_bytes + held.memory_bytes > node.memory_bytes
    ):
        found.append(not_enough("memory", written("memory", memory_bytes)))
    if node.used_pods + held.pods + 1 > node.pods:
        found.append(not_enough("pod slots", "1"))
    return found


def _resources(
    needs: PodNeeds, node: Node, held: AssumedResources, given: Collection[str]
) -> Iterator[str]:
    for name, amount in needs.resources.items():
        total = node.resources.get(name, 0)
        if name in given and total <= 0:
            continue
        used = node.used_resources.get(name, 0) + held.resources.get(name, 0)
        if amount > total - used:
            yield not_enough(name, written(name, amount))


def written(resource: str, amount: int, *, is_left: bool = False) -> str:
    """An amount of a node's resource: bytes as ``16Gi``, of cpu thousandths as ``500m``."""
    if resource in _BYTES or resource.startswith("hugepages-"):
        tell = rounded_down if is_left else readable
        return tell(amount * NANO, binary=True)
    return f"{amount}m" if resource == "cpu" else str(amount)


def _ports(needs: PodNeeds, taken: tuple[HostPort, ...]) -> Iterator[str]:
    for port in needs.ports:
        if any(port.conflicts(other) for other in taken):
            yield f"host port {port} is in use"


def _tolerated(needs: PodNeeds, taint: Taint) -> bool:
    return any(toleration.tolerates(taint) for toleration in needs.tolerations)


def _term(term: NodeTerm, node: Node) -> bool:
    """A term without expressions matches nothing, as in Kubernetes."""
    return bool(term) and all(_expression(one, node) for one in term)


def _expression(expression: NodeExpression, node: Node) -> bool:
    seen = {"metadata.name": node.name} if expression.is_field else node.labels
    return expression.holds(seen)
