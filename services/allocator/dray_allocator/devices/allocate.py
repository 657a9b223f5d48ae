"""Allocate claims on one node: in kube-scheduler's order, or the best rated devices first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dray.api.claims import Allocation, Claim, DeviceRequest
from dray.api.devices import DeviceClass, ResourceSlice
from dray.api.pods import Node
from dray_allocator.devices.allocation_state import AllocationState, TakenDevice, untolerated
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.candidates import Candidate, candidates_of
from dray_allocator.devices.capacity import (
    DemandOf,
    RequestedCapacity,
    demand_by,
    requested_capacity,
)
from dray_allocator.devices.devices_in_use import DevicesInUse
from dray_allocator.devices.errors import AllocationError, NodeAllocationError, SearchLimitError
from dray_allocator.devices.ordered_search import OrderedSearch, PreferenceKey, Rating, SearchPlan
from dray_allocator.devices.pools import ResourcePool, gather
from dray_allocator.devices.requirements import Alternative, Planner, RequestAlternatives
from dray_allocator.devices.results import chosen_of, result_of
from dray_allocator.devices.search import Search
from dray_allocator.devices.selectors import DeviceSelectors
from dray_allocator.devices.versions import SchedulerVersion

_MAX_TRIES: Final = 500_000
"""The default budget of a search: some seconds."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Allocate ``claims`` on ``node``: all of them or none."""

    node: Node
    slices: Sequence[ResourceSlice]
    classes: Sequence[DeviceClass]
    usage: DevicesInUse
    """The devices of other claims."""
    claims: Sequence[Claim]


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """The order in which devices are tried, if it is not kube-scheduler's order."""

    rate: Callable[[int, Alternative, Candidate], tuple[PreferenceKey, int]]
    """The preference key and score of a device, by claim number, alternative and device. The lowest
    is tried first; of equals, the one that kube-scheduler tries first."""
    connects: bool
    """Whether devices of a better link level are preferred."""


@dataclass(frozen=True, slots=True)
class BestAllocation:
    """The allocations of claims on a node, in such an order."""

    results: tuple[Allocation, ...]
    """Per claim."""
    taken: tuple[tuple[TakenDevice, ...], ...]
    """Per claim, the devices with their alternatives."""
    link_level: int


@dataclass(frozen=True, slots=True)
class _NodePlan:
    """Validated claims on one node."""

    problem: Problem
    version: SchedulerVersion
    selectors: DeviceSelectors
    pools: tuple[ResourcePool, ...]
    candidates: tuple[Candidate, ...]
    requests: tuple[tuple[RequestAlternatives, ...], ...]
    """Per claim."""
    state: AllocationState
    demand_of: DemandOf

    def results(
        self, chosen: Sequence[Sequence[Alternative]], taken: Sequence[Sequence[TakenDevice]]
    ) -> list[Allocation]:
        """The allocation of each claim, with the chosen alternative of each request."""
        node, version = self.problem.node, self.version
        return [
            result_of(claim, alternatives, devices, node, version)
            for claim, alternatives, devices in zip(self.problem.claims, chosen, taken, strict=True)
        ]

    def raise_invalid(self) -> None:
        """Report an invalid pool, if there is one, as the reason why nothing fits."""
        for pool in self.pools:
            if pool.invalid and not self.version.stops_at_invalid_pools:
                raise NodeAllocationError(
                    f"nothing fits, and resource pool {pool} is invalid: {pool.invalid}"
                )


def allocate(
    problem: Problem,
    version: SchedulerVersion,
    *,
    budget: SearchBudget | None = None,
    selectors: DeviceSelectors | None = None,
    requested: RequestedCapacity = requested_capacity,
) -> list[Allocation] | None:
    """The allocations, in the order of the claims; None if the claims do not fit on the node.

    ``budget`` limits the devices that the search tries, by default to ``_MAX_TRIES``.
    ``selectors``, of the same node and version, may be lenient.
    ``requested`` returns the requested capacity, if the claim does not contain it.

    Raises:
        AllocationError: Kubernetes ends the attempt with an error: a selector that can't be
            evaluated, a class that is missing, too many devices …
        NodeAllocationError: the same, but about this node only.
        SearchLimitError: the budget is spent.
    """
    plan = _plan(problem, version, selectors or DeviceSelectors(problem.node, version), requested)
    search = Search(
        problem.claims,
        plan.requests,
        lambda alternative: plan.candidates,
        plan.state,
        plan.selectors.match,
        version,
        budget or SearchBudget(_MAX_TRIES),
        invalid=next((pool for pool in plan.pools if pool.invalid), None),
    )
    if not search.run():
        plan.raise_invalid()
        return None
    chosen = [
        chosen_of(
            [wanted.alternatives for wanted in requests],
            {request: found for (at, request), found in search.chosen.items() if at == number},
        )
        for number, requests in enumerate(plan.requests)
    ]
    return plan.results(chosen, plan.state.taken)


def allocate_best(
    problem: Problem,
    version: SchedulerVersion,
    order: DeviceOrder,
    *,
    budget: SearchBudget,
    selectors: DeviceSelectors,
    requested: RequestedCapacity = requested_capacity,
) -> BestAllocation | None:
    """Like ``allocate``, with the devices that ``order`` rates best.

    Raises the same errors, but a device does not fit if its amount can't be computed.
    """
    plan = _plan(problem, version, selectors, requested)
    numbers = {
        id(one): number
        for number, requests in enumerate(plan.requests)
        for request in requests
        for one in request.alternatives
    }
    positions = {candidate: at for at, candidate in enumerate(plan.candidates)}

    def rate(alternative: Alternative, candidate: Candidate) -> Rating:
        key, score = order.rate(numbers[id(alternative)], alternative, candidate)
        return key, score, positions[candidate]

    searched = SearchPlan(tuple(problem.claims), plan.requests)
    search = OrderedSearch(searched, version, budget, problem.usage, plan.demand_of, rate)
    fitting = {id(one): _fitting(plan, numbers[id(one)], one) for one in searched.alternatives}
    found = search.best(search.in_order(fitting), connects=order.connects)
    if found is None:
        if budget.ran_out:
            raise SearchLimitError(f"gave up after looking at {budget.limit} devices")
        plan.raise_invalid()
        return None
    taken: list[list[TakenDevice]] = [[] for _ in problem.claims]
    for one in found.taken:
        taken[numbers[id(one.alternative)]].append(one)
    chosen = [list(dict.fromkeys(one.alternative for one in some)) for some in taken]
    return BestAllocation(tuple(plan.results(chosen, taken)), tuple(map(tuple, taken)), found.level)


def _plan(
    problem: Problem,
    version: SchedulerVersion,
    selectors: DeviceSelectors,
    requested: RequestedCapacity,
) -> _NodePlan:
    pools = tuple(gather(problem.slices, problem.node, version))
    demand_of = demand_by(version, requested)
    state = AllocationState(problem.claims, problem.usage, version, demand_of)

    def has_room(ask: DeviceRequest, candidate: Candidate) -> bool:
        return state.has_room(ask, candidate, now=version.all_needs_free_capacity)

    classes = {one.name: one for one in problem.classes}
    candidates = tuple(candidates_of(pool for pool in pools if _is_usable(pool, version)))
    planner = Planner(classes, pools, candidates, version, selectors.match, has_room)
    requests = tuple(planner.plan(claim) for claim in problem.claims)
    return _NodePlan(problem, version, selectors, pools, candidates, requests, state, demand_of)


def _fitting(plan: _NodePlan, number: int, alternative: Alternative) -> Sequence[Candidate]:
    """The devices that fit an alternative of a claim, if it is considered alone."""
    if alternative.all_devices is not None:
        return alternative.all_devices
    claim, ask, of_class = plan.problem.claims[number], alternative.ask, alternative.of_class
    state = plan.state
    return [
        one
        for one in plan.candidates
        if state.is_free(number, ask, one)
        and not untolerated(one.device.taints, ask.tolerations)
        and plan.selectors.match(claim, ask, of_class, one)
        and _has_room(state, ask, one)
    ]


def _has_room(state: AllocationState, ask: DeviceRequest, candidate: Candidate) -> bool:
    try:
        return state.has_room(ask, candidate)
    except AllocationError:
        return False


def _is_usable(pool: ResourcePool, version: SchedulerVersion) -> bool:
    return not pool.invalid and (version.uses_incomplete_pools or not pool.incomplete)
