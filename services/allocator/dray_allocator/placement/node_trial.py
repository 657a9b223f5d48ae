"""Whether a pod's claims fit on one node, and with which of all devices that the node sees."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dray.api.claims import Allocation
from dray.api.pods import Node
from dray_allocator.devices.allocate import (
    BestAllocation,
    DeviceOrder,
    Problem,
    allocate,
    allocate_best,
)
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.errors import AllocationError, NodeAllocationError, SearchLimitError
from dray_allocator.devices.ordered_search import PreferenceKey, worst_first
from dray_allocator.devices.published_devices import totals_of
from dray_allocator.devices.requirements import Alternative
from dray_allocator.devices.selectors import LenientSelectors
from dray_allocator.devices.usage import load_of
from dray_allocator.devices.visible_devices import VisibleDevices
from dray_allocator.nodes.ratings import NodeScore
from dray_allocator.nodes.table import NodeTable
from dray_allocator.placement.pod_claims import PodClaims
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.policies import by_load
from dray_allocator.scoring.preference import card_key
from dray_allocator.state.state import AllocatorState

_UNLIMITED: Final = 2**62


@dataclass(frozen=True, slots=True)
class Feasibility:
    """The result of the search on a node, which is the result on every node of its class."""

    is_feasible: bool = False
    skipped_alternatives: int = 0
    """How many alternatives with a higher priority did not fit."""
    preference_keys: tuple[PreferenceKey, ...] = ()
    """Preference keys of the devices, as ``worst_first``."""
    link_level: int = 0
    is_error: bool = False
    """Whether the node can't be decided."""
    ends_attempt: bool = False
    """Whether kube-scheduler would then end the attempt."""
    is_slow: bool = False
    """Whether the search did not end within its budget."""


@dataclass(frozen=True, slots=True)
class NodeTrial:
    """The result of the search on one node."""

    feasibility: Feasibility
    results: tuple[Allocation, ...] = ()
    error: str = ""
    looks: int = 0
    """Devices looked at."""


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """The claims of a pod on one node that passes the predicates."""

    state: AllocatorState
    wanted: PodRequest
    pod: PodClaims
    table: NodeTable
    score: NodeScore
    node: Node
    visible: VisibleDevices


def evaluate_node(problem: NodeProblem, most_looks: int) -> NodeTrial:
    """Devices for all requests of all claims together, among all that the node sees."""
    state, pod, visible = problem.state, problem.pod, problem.visible
    classes = tuple(state.facts.classes.values())
    usage = visible.usage(pod.version)
    on_node = Problem(problem.node, visible.slices, classes, usage, pod.claims)
    total = SearchBudget(_UNLIMITED)
    budget = total.part(most_looks)

    def ended(feasibility: Feasibility, error: str = "") -> NodeTrial:
        return NodeTrial(feasibility, (), error, total.tried)

    try:
        found = _allocate(problem, on_node, budget)
    except SearchLimitError:
        return ended(Feasibility(is_slow=True))
    except NodeAllocationError as error:
        return ended(Feasibility(is_error=True), str(error))
    except AllocationError as error:
        return ended(Feasibility(is_error=True, ends_attempt=pod.is_compatible), str(error))
    if found is None:
        return ended(Feasibility())
    feasibility = Feasibility(
        is_feasible=True,
        skipped_alternatives=_skipped_alternatives(pod, found.results),
        preference_keys=_preference_keys(pod, found) if pod.prefers else (),
        link_level=found.link_level if pod.connects else 0,
    )
    return NodeTrial(feasibility, found.results, "", total.tried)


def _allocate(
    problem: NodeProblem, on_node: Problem, budget: SearchBudget
) -> BestAllocation | None:
    state, pod = problem.state, problem.pod
    if pod.is_compatible:
        found = allocate(on_node, pod.version, budget=budget, requested=pod.requested_capacity())
        return None if found is None else BestAllocation(tuple(found), (), 0)
    return allocate_best(
        on_node,
        pod.version,
        DeviceOrder(_rate(problem), pod.connects),
        budget=budget,
        selectors=LenientSelectors(on_node.node, pod.version, state.published, state.selectors),
        requested=pod.requested_capacity(),
    )


def _rate(
    problem: NodeProblem,
) -> Callable[[int, Alternative, Candidate], tuple[PreferenceKey, int]]:
    """By preference, then by score. Devices outside the scope of the node table are scored by
    their load."""
    state, node, preferences = problem.state, problem.node.name, problem.pod.preferences
    rank = problem.score.rank(problem.table, problem.table.rows[node])
    sign = -1 if by_load(problem.wanted.pattern.placement).card_fills else 1

    def rate(
        claim: int, alternative: Alternative, candidate: Candidate
    ) -> tuple[PreferenceKey, int]:
        preference = preferences[claim].get(alternative.request, ())
        key = card_key(preference, candidate.device) if preference else ()
        card = state.published.cards.get(candidate.id)
        if card is not None and card.node == node:
            return key, rank(card)
        use = state.device_usage.of(candidate.id)
        return key, sign * load_of(totals_of(candidate.device.capacity), use)

    return rate


def _skipped_alternatives(pod: PodClaims, results: Sequence[Allocation]) -> int:
    passed = 0
    for claim, result in zip(pod.claims, results, strict=True):
        taken = {device.request for device in result.devices}
        for request in claim.spec.requests:
            names = [f"{request.name}/{one.name}" for one in request.first_available]
            passed += next((at for at, name in enumerate(names) if name in taken), 0)
    return passed


def _preference_keys(pod: PodClaims, found: BestAllocation) -> tuple[PreferenceKey, ...]:
    return worst_first(
        card_key(preferences.get(one.alternative.request, ()), one.candidate.device)
        for preferences, taken in zip(pod.preferences, found.taken, strict=True)
        for one in taken
    )
