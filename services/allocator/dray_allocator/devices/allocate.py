"""The way in: claims, and what there is for them on one node."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dray.api.claims import Allocation, Claim, DeviceRequest
from dray.api.devices import DeviceClass, ResourceSlice
from dray.api.pods import Node
from dray_allocator.devices.allocation_state import AllocationState
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.candidates import Candidate, candidates_of
from dray_allocator.devices.capacity import Stated, as_stated, demand_by
from dray_allocator.devices.errors import NodeAllocationError
from dray_allocator.devices.pools import ResourcePool, gather
from dray_allocator.devices.requirements import Planner
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
    pools = gather(problem.slices, problem.node, rules)
    state = AllocationState(problem.claims, problem.usage, rules, demand_by(rules, stated))
    selectors = selectors or DeviceSelectors(problem.node, rules)

    def has_room(ask: DeviceRequest, candidate: Candidate) -> bool:
        return state.has_room(ask, candidate, now=rules.all_by_what_is_left)

    classes = {one.name: one for one in problem.classes}
    candidates = tuple(candidates_of(pool for pool in pools if _is_usable(pool, rules)))
    planner = Planner(classes, pools, candidates, rules, selectors.take, has_room)
    plans = [planner.plan(claim) for claim in problem.claims]
    search = Search(
        problem.claims,
        plans,
        lambda alternative: candidates,
        state,
        selectors.take,
        rules,
        budget or SearchBudget(MOST_LOOKED_AT),
        invalid=next((pool for pool in pools if pool.invalid), None),
    )
    if not search.run():
        _blame(pools, rules)
        return None
    return [
        result_of(
            claim,
            chosen_of(
                [wanted.alternatives for wanted in plans[index]],
                {request: found for (at, request), found in search.chosen.items() if at == index},
            ),
            state.taken[index],
            problem.node,
            rules,
        )
        for index, claim in enumerate(problem.claims)
    ]


def _is_usable(pool: ResourcePool, rules: SchedulerVersion) -> bool:
    return not pool.invalid and (rules.uses_incomplete_pools or not pool.incomplete)


def _blame(pools: Sequence[ResourcePool], rules: SchedulerVersion) -> None:
    """That nothing fits may be the fault of a pool that can't be used."""
    for pool in pools:
        if pool.invalid and not rules.stops_at_invalid_pools:
            raise NodeAllocationError(
                f"nothing fits, and resource pool {pool} is invalid: {pool.invalid}"
            )
