"""How a pod is scheduled: by the node table, or by the search, node by node."""

from dray.reasons import Reason, bounded
from dray_allocator.claim_search.schedule import Pause, choose_in_full, may_fit_in_full
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.explain.claim_search import explain_in_full
from dray_allocator.explain.pods import explain
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.placement.schedule import Choice, choose, index_of
from dray_allocator.placement.unallocatable_claims import held
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
    """The same, or no answer yet where the search has used up the budget.

    What the node table reads it decides; where it finds nothing, there may still be devices that it
    does not read.
    """
    if not wanted.in_full:
        choice = choose(state, domain, wanted)
        if choice is not None or not may_be_in_full(state, wanted):
            return choice
    return choose_in_full(state, domain, wanted, budget)


def may_fit(state: AllocatorState, domain: Domain, wanted: PodRequest) -> bool:
    """Whether a node looks as if it fitted a pod that fitted nowhere: it changed since, or what
    was told of it is not certain."""
    if not wanted.in_full:
        if index_of(state, domain, wanted).best() >= 0:
            return True
        if not may_be_in_full(state, wanted):
            return False
    return may_fit_in_full(state, domain, wanted)


def explain_pod(state: AllocatorState, domain: Domain, wanted: PodRequest) -> tuple[Reason, ...]:
    """Why it fits nowhere; devices that the node table does not read are counted too."""
    if wanted.in_full or state.published.says_more:
        reasons = explain_in_full(state, domain, wanted)
    else:
        reasons = explain(state, domain, wanted)
    return bounded((*reasons, *held(state, domain)) if state.facts.given_up else reasons)


def may_be_in_full(state: AllocatorState, wanted: PodRequest) -> bool:
    """Whether devices that the node table does not read could serve the pod. For cards that must be
    joined structured parameters have no words."""
    return state.published.says_more and not must_be_connected(wanted.asks, wanted.placement)
