"""The nodes on which a pod may run, apart from their devices."""

from dray.api.nodes import NodeSelection
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.node_selection import is_reached
from dray_allocator.nodes.predicates import fits
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


def candidates(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> list[str]:
    """Nodes of the domain that the pod's claims and its node name or selector allow."""
    facts = state.facts
    if wanted.fixed_node:
        return [wanted.fixed_node] if facts.serves(wanted.fixed_node, domain.name) else []
    if wanted.pattern.named_nodes is None:
        nodes = facts.served_nodes(domain.name)
    else:
        nodes = [node for node in wanted.pattern.named_nodes if facts.serves(node, domain.name)]
    if wanted.reach:
        nodes = [node for node in nodes if is_reached_by(state, wanted, node)]
    return [node for node in nodes if node not in wanted.excluded] if wanted.excluded else nodes


def is_reached_by(state: AllocatorState, wanted: PodRequest, name: str) -> bool:
    """Whether a node can use the devices that the pod's allocated claims have."""
    node = state.facts.nodes[name].node
    try:
        return all(is_reached(NodeSelection(selector=one), node) for one in wanted.reach)
    except AllocationError:
        return False


def passes(state: AllocatorState, wanted: PodRequest, node: str) -> bool:
    """Whether the node passes the predicates."""
    fact, assumed, given = (
        state.facts.nodes[node].node,
        state.assumed_pods.on(node),
        state.facts.given,
    )
    return fits(wanted.pod.needs, fact, assumed, alone=wanted.pattern.alone, given=given)
