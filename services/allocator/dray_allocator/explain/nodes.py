"""Why nodes fail the filters for a pod, apart from their devices.

Nodes that pass all filters by the node table are not evaluated again.
"""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from dray.api.pods import Node
from dray.reasons import Nearest, Reason, name_list
from dray_allocator.devices.usage import FULL_NODE, AssumedResources
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.nodes.predicates import failures, written
from dray_allocator.nodes.tie_break import tie
from dray_allocator.placement.node_filter import is_reached_by
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.state.state import AllocatorState

_EXCLUDED: Final = "an allocation for the pod was rolled back there recently"
_UNREACHABLE: Final = "can't use a claim of the pod that is allocated already"
_NOT_ENOUGH = re.compile(r"not enough free (\S+)(?: slots)? \(")
Rank = tuple[int, int, int]
"""The lowest is the nearest: most free amount, fewest other failures, tie break."""


def node_reasons(
    state: AllocatorState, wanted: PodRequest, nodes: Sequence[str], index: NodeIndex | None = None
) -> list[Reason]:
    """Why nodes don't fit the pod, sorted by text. Without an index, every node is evaluated."""
    counts: dict[str, int] = {}
    nearest: dict[str, tuple[Rank, Nearest]] = {}
    for name in nodes if index is None else _nodes_to_check(wanted, nodes, index):
        node, assumed = state.facts.nodes[name].node, state.assumed_pods.on(name)
        if assumed.pods >= FULL_NODE.pods:
            continue  # The reasons say for whom the node is held.
        given = state.facts.given
        failing = tuple(
            failures(wanted.pod.needs, node, assumed, alone=wanted.pattern.alone, given=given)
        )
        for what in failing:
            counts[what] = counts.get(what, 0) + 1
            left, seen = free_amount(what, node, assumed)
            rank = (-left, len(failing), tie(node.uid or name))
            if what not in nearest or rank < nearest[what][0]:
                nearest[what] = rank, Nearest(name, seen)
    total = len(nodes)
    reasons = [
        Reason("node", what, counts[what], total, "node", nearest=nearest[what][1])
        for what in sorted(counts)
    ]
    return [*reasons, *_exclusion_reasons(state, wanted, nodes)]


def pool_reasons(state: AllocatorState, pool: str) -> list[Reason]:
    """Why the pool lacks nodes."""
    found = []
    if lost := sorted(state.facts.in_other_pools.get(pool, ())):
        named = [f"{name} ({state.facts.nodes[name].node.assigned_pool})" for name in lost]
        what = f"pool {pool} selects nodes that other pools have: {name_list(named)}"
        found.append(Reason("pool", what, 0, 0, "node"))
    if not state.facts.served_nodes(pool):
        found.append(Reason("pool", f"pool {pool} has no node to allocate on", 0, 0, "pool"))
    return found


def _exclusion_reasons(
    state: AllocatorState, wanted: PodRequest, nodes: Sequence[str]
) -> list[Reason]:
    """Why nodes are excluded for this pod: its other claims, and earlier rollbacks."""
    found = []
    if wanted.fixed_node:
        others = len(nodes) - (wanted.fixed_node in nodes)
        what = f"not {wanted.fixed_node}, where another claim of the pod is allocated"
        found.append(Reason("node", what, others, len(nodes), "node"))
    if wanted.reach:
        out_of_reach = sum(not is_reached_by(state, wanted, name) for name in nodes)
        found.append(Reason("node", _UNREACHABLE, out_of_reach, len(nodes), "node"))
    excluded = sum(name in nodes for name in dict.fromkeys(wanted.excluded))
    found.append(Reason("node", _EXCLUDED, excluded, len(nodes), "node"))
    return [reason for reason in found if reason.failed]


def _nodes_to_check(wanted: PodRequest, nodes: Sequence[str], index: NodeIndex) -> Sequence[str]:
    """The nodes that may fail a filter, by the node table."""
    needs = wanted.pod.needs
    if needs.resources or needs.ports or not index.plan.decides_needs:
        return nodes
    rows = np.array([index.table.rows[name] for name in nodes], np.intp)
    refused = ~index.may_run(rows)
    return [nodes[at] for at in refused.nonzero()[0].tolist()]


def free_amount(what: str, node: Node, assumed: AssumedResources) -> tuple[int, str]:
    """How much of an insufficient resource a node has left, as a number and as text; 0 and an empty
    text for other failures."""
    match = _NOT_ENOUGH.match(what)
    if match is None:
        return 0, ""
    name = match[1]
    if name == "cpu":
        left = node.cpu_milli - node.used_cpu_milli - assumed.cpu_milli
    elif name == "memory":
        left = node.memory_bytes - node.used_memory_bytes - assumed.memory_bytes
    elif name == "pod":
        left = node.pods - node.used_pods - assumed.pods
    else:
        used = node.used_resources.get(name, 0) + assumed.resources.get(name, 0)
        left = node.resources.get(name, 0) - used
    return left, written(name, max(0, left), is_left=True)
