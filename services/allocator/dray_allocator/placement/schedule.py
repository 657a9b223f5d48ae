"""Schedules a pod: filters and scores the nodes, and picks devices on the best node.

The fast path decides the pods and devices of its scope. The search decides all others, once per
class of nodes.
"""

from dray_allocator.devices.budget import SearchBudget
from dray_allocator.placement.choice import Choice, Pause
from dray_allocator.placement.class_search import ClassSearch
from dray_allocator.placement.fast_path.table_choice import choose, index_of
from dray_allocator.placement.holds import claimant, usable
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.topology import must_be_connected
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


def find(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> Choice | None:
    """The best node on which everything fits, or None."""
    choice = schedule_pod(state, domain, wanted, None)
    return None if isinstance(choice, Pause) else choice


def schedule_pod(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest, budget: SearchBudget | None
) -> Choice | Pause | None:
    """The best node, None if none fits, or a pause if the search has used up the budget.

    Devices in the scope of the node table come first, if the pod is in its scope; other devices
    only if none of them fits.
    """
    if domain.current.group_holds or domain.current.node_hold:
        with usable(state, domain, claimant(state, wanted.pod)):
            return _schedule(state, domain, wanted, budget)
    return _schedule(state, domain, wanted, budget)


def _schedule(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest, budget: SearchBudget | None
) -> Choice | Pause | None:
    if not wanted.pattern.in_full:
        choice = choose(state, domain, wanted)
        if choice is not None or not may_use_other_devices(state, wanted):
            return choice
    return ClassSearch(state, domain, wanted, budget).choice()


def may_fit(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> bool:
    """Whether a node may fit a pod that fitted nowhere: the node changed, or its search did not
    end."""
    if domain.current.group_holds or domain.current.node_hold:
        with usable(state, domain, claimant(state, wanted.pod)):
            return _may_fit(state, domain, wanted)
    return _may_fit(state, domain, wanted)


def _may_fit(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> bool:
    if not wanted.pattern.in_full:
        if index_of(state, domain, wanted).best() >= 0:
            return True
        if not may_use_other_devices(state, wanted):
            return False
    return ClassSearch(state, domain, wanted).is_open()


def may_use_other_devices(state: AllocatorState, wanted: PodRequest) -> bool:
    """Whether devices outside the scope of the node table could fit the pod. A pod that requires
    connected devices can't have them."""
    return bool(state.published.beyond_table) and not must_be_connected(
        wanted.pattern.asks, wanted.pattern.placement
    )
