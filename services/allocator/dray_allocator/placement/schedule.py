"""How a pod is scheduled: filter and score the nodes, and pick devices on the best."""

from dray_allocator.devices.budget import SearchBudget
from dray_allocator.placement.choice import Choice, Pause
from dray_allocator.placement.class_search import NodeSearch
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.placement.table_search import choose, index_of
from dray_allocator.scoring.topology import must_be_connected
from dray_allocator.state.domain import Domain
from dray_allocator.state.state import AllocatorState


def find(state: AllocatorState, domain: Domain, wanted: PodRequest) -> Choice | None:
    """The best node on which everything fits, or None."""
    choice = schedule_pod(state, domain, wanted, None)
    return None if isinstance(choice, Pause) else choice


def schedule_pod(
    state: AllocatorState, domain: Domain, wanted: PodRequest, budget: SearchBudget | None
) -> Choice | Pause | None:
    """The same, or no answer yet if the search has used up the budget.

    If the node table reads all that the pod asks for, its devices come first; if none fit, devices
    that it does not read may.
    """
    if not wanted.in_full:
        choice = choose(state, domain, wanted)
        if choice is not None or not may_use_other_devices(state, wanted):
            return choice
    return NodeSearch(state, domain, wanted, budget).choice()


def may_fit(state: AllocatorState, domain: Domain, wanted: PodRequest) -> bool:
    """Whether a node may fit a pod that fitted nowhere: it changed since, or its search did not
    end."""
    if not wanted.in_full:
        if index_of(state, domain, wanted).best() >= 0:
            return True
        if not may_use_other_devices(state, wanted):
            return False
    return NodeSearch(state, domain, wanted).is_open()


def may_use_other_devices(state: AllocatorState, wanted: PodRequest) -> bool:
    """Whether devices that the node table does not read could serve the pod. They can't be required
    to be connected."""
    return state.published.has_slices_beyond_table and not must_be_connected(
        wanted.asks, wanted.placement
    )
