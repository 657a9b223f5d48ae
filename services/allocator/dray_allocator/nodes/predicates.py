"""Whether a pod fits on a node, apart from devices.

Each predicate follows a filter plugin of kube-scheduler 1.36: NodeResourcesFit, NodePorts,
NodeAffinity, TaintToleration and NodeUnschedulable. Pods with other needs are left to
kube-scheduler. ``make conformance PARTS=node-fit`` compares with these plugins.
"""

from collections.abc import Collection, Iterator

from dray.api.devices import Taint
from dray.api.names import DEDICATED_TAINT
from dray.api.pods import HostPort, Node, NodeExpression, NodeTerm, PodNeeds
from dray.api.quantities import NANO, readable, rounded_down
from dray.reasons import not_enough
from dray_allocator.devices.usage import AssumedResources

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
_BYTES = ("memory", "ephemeral-storage")


def fits(
    needs: PodNeeds,
    node: Node,
    assumed: AssumedResources,
    *,
    alone: bool = False,
    given: Collection[str] = (),
) -> bool:
    """Whether no predicate fails."""
    return next(failures(needs, node, assumed, alone=alone, given=given), None) is None


def failures(
    needs: PodNeeds,
    node: Node,
    assumed: AssumedResources,
    *,
    alone: bool = False,
    given: Collection[str] = (),
) -> Iterator[str]:
    """The messages of all predicates that fail.

    ``alone``: only dray may bind pods to the node. Before the node has its pool's taint,
    kube-scheduler may bind pods there that are not observed yet.

    ``given``: extended resources for which kube-scheduler allocates devices of a DeviceClass, if it
    binds the pod and the node does not have the resource.
    """
    if not node.ready:
        yield "not ready"
    if alone and not node.dedicated:
        yield f"node taint {DEDICATED_TAINT}={node.pool}:NoSchedule is missing"
    if node.unschedulable and not _tolerates(needs, UNSCHEDULABLE):
        yield "unschedulable"
    yield from _amounts(needs, node, assumed)
    if needs.resources:
        yield from _resources(needs, node, assumed, () if alone else given)
    if needs.ports:
        yield from _ports(needs, (*node.used_ports, *assumed.ports))
    labels = needs.node_selector
    if labels and any(node.labels.get(key) != value for key, value in labels.items()):
        yield "node selector does not match"
    if needs.node_terms and not any(_term(term, node) for term in needs.node_terms):
        yield "node affinity does not match"
    for taint in node.taints:
        # A cordoned node also has this taint: report it once.
        if taint == UNSCHEDULABLE and node.unschedulable:
            continue
        if taint.effect in _BLOCKING_EFFECTS and not _tolerates(needs, taint):
            yield f"node taint {taint.key}={taint.value}:{taint.effect} is not tolerated"


def _amounts(needs: PodNeeds, node: Node, assumed: AssumedResources) -> list[str]:
    """The resources of every node: cpu, memory and pod slots."""
    cpu_milli, memory_bytes, found = needs.cpu_milli, needs.memory_bytes, []
    if cpu_milli and cpu_milli + node.used_cpu_milli + assumed.cpu_milli > node.cpu_milli:
        found.append(not_enough("cpu", written("cpu", cpu_milli)))
    if (
        memory_bytes
        and memory_bytes + node.used_memory_bytes + assumed.memory_bytes > node.memory_bytes
    ):
        found.append(not_enough("memory", written("memory", memory_bytes)))
    if node.used_pods + assumed.pods + 1 > node.pods:
        found.append(not_enough("pod slots", "1"))
    return found


def _resources(
    needs: PodNeeds, node: Node, assumed: AssumedResources, given: Collection[str]
) -> Iterator[str]:
    for name, amount in needs.resources.items():
        total = node.resources.get(name, 0)
        if name in given and total <= 0:
            continue
        used = node.used_resources.get(name, 0) + assumed.resources.get(name, 0)
        if amount > total - used:
            yield not_enough(name, written(name, amount))


def written(resource: str, amount: int, *, is_left: bool = False) -> str:
    """Format an amount of a resource: bytes as ``16Gi``, thousandths of a cpu as ``500m``."""
    if resource in _BYTES or resource.startswith("hugepages-"):
        format_amount = rounded_down if is_left else readable
        return format_amount(amount * NANO, binary=True)
    return f"{amount}m" if resource == "cpu" else str(amount)


def _ports(needs: PodNeeds, taken: tuple[HostPort, ...]) -> Iterator[str]:
    for port in needs.ports:
        if any(port.conflicts(other) for other in taken):
            yield f"host port {port} is in use"


def _tolerates(needs: PodNeeds, taint: Taint) -> bool:
    return any(toleration.tolerates(taint) for toleration in needs.tolerations)


def _term(term: NodeTerm, node: Node) -> bool:
    """Whether a term matches. A term without expressions matches nothing, as in Kubernetes."""
    return bool(term) and all(_expression(one, node) for one in term)


def _expression(expression: NodeExpression, node: Node) -> bool:
    seen = {"metadata.name": node.name} if expression.is_field else node.labels
    return expression.holds(seen)
