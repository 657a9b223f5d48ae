"""A node with devices for a pod, and which of several is the best."""

from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec

from dray.api.claims import Allocation
from dray.api.nodes import NodeSelection
from dray_allocator.devices.device_requests import Share
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.links import BEYOND_NVLINK
from dray_allocator.devices.node_selection import is_reached
from dray_allocator.devices.ordered_search import PreferenceKey
from dray_allocator.nodes.table import NodeTable
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

CONNECTED_NODES: Final = 8
"""Nodes compared for devices that NVLink connects: those with the best scores."""


class Pause(Enum):
    """No answer yet."""

    UNFINISHED = "unfinished"


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A node and devices for a pod."""

    node: str
    shares: tuple[Share, ...]
    considered_devices: int
    link_level: int = 0
    """Of its devices (``devices.links``); 0 is best."""
    results: tuple[Allocation, ...] = ()
    """What each claim gets, if all devices that the node sees were searched; else ``shares``."""
    worth: tuple[PreferenceKey, ...] = ()
    """Preference keys of the devices, as ``worst_first``."""
    passed_over: int = 0
    """How many alternatives with a higher priority did not fit."""

    @property
    def rank(self) -> tuple[int, tuple[PreferenceKey, ...], int]:
        """The lowest is best. Of equal ranks, the node with the better score wins."""
        return self.passed_over, self.worth, self.link_level


def best_choice(
    choices: Iterable[Choice], table: NodeTable, *, prefers: bool, connects: bool
) -> Choice | None:
    """The best of ``choices``, which come in the order of the score.

    With a preference all are compared, link levels among the first few, and alternatives until the
    first alternative fits.
    """
    best: Choice | None = None
    compared = CONNECTED_NODES if connects and table.linked else 1
    for number, choice in enumerate(choices, 1):
        if best is None or choice.rank < best.rank:
            best = choice
        if prefers or best.passed_over:
            continue
        if number >= compared or best.link_level < BEYOND_NVLINK:
            break
    return best


def candidates(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> list[str]:
    """Nodes of the domain that the pod's claims and its node name or selector allow."""
    facts = state.facts
    if wanted.fixed_node:
        return [wanted.fixed_node] if facts.serves(wanted.fixed_node, domain.name) else []
    if wanted.named_nodes is None:
        nodes = facts.served_nodes(domain.name)
    else:
        nodes = [node for node in wanted.named_nodes if facts.serves(node, domain.name)]
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
