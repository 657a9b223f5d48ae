"""Allocation of claims on one node: in kube-scheduler's order, or the best rated devices first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dray.api.claims import Allocation, Claim, DeviceRequest
from dray.api.devices import DeviceClass, ResourceSlice
from dray.api.pods import Node
from dray_allocator.devices.allocation_state import AllocationState, Taken, untolerated
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.candidates import Candidate, candidates_of
from dray_allocator.devices.capacity import DemandOf, Stated, as_stated, demand_by
from dray_allocator.devices.errors import AllocationError, NodeAllocationError, SearchLimitError
from dray_allocator.devices.ordered_search import Key, OrderedSearch, Rating, SearchPlan
from dray_allocator.devices.pools import ResourcePool, gather
from dray_allocator.devices.requirements import Alternative, Planner, RequestAlternatives
from dray_allocator.devices.results import chosen_of, result_of
from dray_allocator.devices.search import Search
from dray_allocator.devices.selectors import DeviceSelectors
from dray_allocator.devices.usage import Usage
from dray_allocator.devices.versions import SchedulerVersion

MOST_LOOKED_AT: Final = 500_000
"""Devices that a search looks at before it gives up: some seconds' worth."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be decided: ``claims`` on ``node``, all of them or none."""

    node: Node
    slices: Sequence[ResourceSlice]
    classes: Sequence[DeviceClass]
    usage: Usage
    """What other claims hold."""
    claims: Sequence[Claim]


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """The order in which devices are tried, if it is not kube-scheduler's."""

    rate: Callable[[int, Alternative, Candidate], tuple[Key, int]]
    """A device's preference key and score for an alternative of a claim (by its number); the
    lowest is tried first, of equal ones the one that kube-scheduler tries first."""
    connects: bool
    """Whether devices of a better link level are preferred."""


@dataclass(frozen=True, slots=True)
class BestAllocation:
    """What claims get on a node in such an order."""

    results: tuple[Allocation, ...]
    """Of each claim."""
    taken: tuple[tuple[Taken, ...], ...]
    """Per claim, the devices with the alternatives that they are for."""
    link_level: int


@dataclass(frozen=True, slots=True)
class _NodePlan:
    """Claims that are checked and planned on one node."""

    problem: Problem
    rules: SchedulerVersion
    selectors: DeviceSelectors
    pools: tuple[ResourcePool, ...]
    candidates: tuple[Candidate, ...]
    requests: tuple[tuple[RequestAlternatives, ...], ...]
    """Of each claim."""
    state: AllocationState
    demand_of: DemandOf

    def results(
        self, chosen: Sequence[Sequence[Alternative]], taken: Sequence[Sequence[Taken]]
    ) -> list[Allocation]:
        """What each claim gets by the chosen alternative of each request."""
        node, rules = self.problem.node, self.rules
        return [
            result_of(claim, alternatives, devices, node, rules)
            for claim, alternatives, devices in zip(self.problem.claims, chosen, taken, strict=True)
        ]

    def raise_invalid(self) -> None:
        """That nothing fits may be the fault of a pool that can't be used."""
        for pool in self.pools:
            if pool.invalid and not self.rules.stops_at_invalid_pools:
                raise NodeAllocationError(
                    f"nothing fits, and resource pool {pool} is invalid: {pool.invalid}"
                )


def allocate(
    problem: Problem,
    rules: SchedulerVersion,
    *,
    budget: SearchBudget | None = None,
    selectors: DeviceSelectors | None = None,
    stated: Stated = as_stated,
) -> list[Allocation] | None:
    """What each claim gets, in the order of the claims; None where they don't fit on the node.

    ``budget`` bounds the devices that the search looks at; by default to ``MOST_LOOKED_AT``.
    ``selectors``, of the same node and rules, may be more forgiving. ``stated``
    tells what requests take of a device where that is not in the claim.

    Raises:
        AllocationError: Kubernetes ends the attempt with an error: a selector that can't be
            evaluated, a class that is missing, too many devices …
        NodeAllocationError: the same, but about this node only.
        SearchLimitError: the search takes too long.
    """
    plan = _plan(problem, rules, selectors or DeviceSelectors(problem.node, rules), stated)
    search = Search(
        problem.claims,
        plan.requests,
        lambda alternative: plan.candidates,
        plan.state,
        plan.selectors.take,
        rules,
        budget or SearchBudget(MOST_LOOKED_AT),
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
    rules: SchedulerVersion,
    order: DeviceOrder,
    *,
    budget: SearchBudget,
    selectors: DeviceSelectors,
    stated: Stated = as_stated,
) -> BestAllocation | None:
    """The same with the devices that ``order`` rates best.

    Raises as ``allocate`` does; a device of which an amount can't be computed does not fit.
    """
    plan = _plan(problem, rules, selectors, stated)
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
    search = OrderedSearch(searched, rules, budget, problem.usage, plan.demand_of, rate)
    fitting = {id(one): _fitting(plan, numbers[id(one)], one) for one in searched.alternatives}
    found = search.best(search.in_order(fitting), connects=order.connects)
    if found is None:
        if budget.ran_out:
            raise SearchLimitError(f"gave up after looking at {budget.most} devices")
        plan.raise_invalid()
        return None
    taken: list[list[Taken]] = [[] for _ in problem.claims]
    for one in found.taken:
        taken[numbers[id(one.alternative)]].append(one)
    chosen = [list(dict.fromkeys(one.alternative for one in some)) for some in taken]
    return BestAllocation(tuple(plan.results(chosen, taken)), tuple(map(tuple, taken)), found.level)


def _plan(
    problem: Problem, rules: SchedulerVersion, selectors: DeviceSelectors, stated: Stated
) -> _NodePlan:
    pools = tuple(gather(problem.slices, problem.node, rules))
    demand_of = demand_by(rules, stated)
    state = AllocationState(problem.claims, problem.usage, rules, demand_of)

    def has_room(ask: DeviceRequest, candidate: Candidate) -> bool:
        return state.has_room(ask, candidate, now=rules.all_by_what_is_left)

    classes = {one.name: one for one in problem.classes}
    candidates = tuple(candidates_of(pool for pool in pools if _is_usable(pool, rules)))
    planner = Planner(classes, pools, candidates, rules, selectors.take, has_room)
    requests = tuple(planner.plan(claim) for claim in problem.claims)
    return _NodePlan(problem, rules, selectors, pools, candidates, requests, state, demand_of)


def _fitting(plan: _NodePlan, number: int, alternative: Alternative) -> Sequence[Candidate]:
    """The devices that an alternative of a claim could have by itself."""
    if alternative.every is not None:
        return alternative.every
    claim, ask, of_class = plan.problem.claims[number], alternative.ask, alternative.of_class
    state = plan.state
    return [
        one
        for one in plan.candidates
        if state.is_free(number, ask, one)
        and not untolerated(one.device.taints, ask.tolerations)
        and plan.selectors.take(claim, ask, of_class, one)
        and _has_room(state, ask, one)
    ]


def _has_room(state: AllocationState, ask: DeviceRequest, candidate: Candidate) -> bool:
    try:
        return state.has_room(ask, candidate)
    except AllocationError:
        return False


def _is_usable(pool: ResourcePool, rules: SchedulerVersion) -> bool:
    return not pool.invalid and (rules.uses_incomplete_pools or not pool.incomplete)
