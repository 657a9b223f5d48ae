"""Which lane decides about a pod: the board, or the whole of structured parameters."""

from dray.reasons import Reason
from dray_allocator.domain import Domain
from dray_allocator.lane.choose import choose_in_full
from dray_allocator.lane.reasons import explain_in_full
from dray_allocator.placement.ask import Wanted
from dray_allocator.placement.choose import Choice, choose
from dray_allocator.placement.explain import explain
from dray_allocator.state import AllocatorState


def find(state: AllocatorState, domain: Domain, wanted: Wanted) -> Choice | None:
    """The best node on which everything fits, or None.

    What the board reads it decides; where it finds nothing, there may still be devices that it
    does not read.
    """
    if not wanted.in_full:
        choice = choose(state, domain, wanted)
        if choice is not None or not may_be_in_full(state, wanted):
            return choice
    return choose_in_full(state, domain, wanted)


def why_not(state: AllocatorState, domain: Domain, wanted: Wanted) -> tuple[Reason, ...]:
    """Why it fits nowhere."""
    if wanted.in_full or may_be_in_full(state, wanted):
        return explain_in_full(state, domain, wanted)
    return explain(state, domain, wanted)


def may_be_in_full(state: AllocatorState, wanted: Wanted) -> bool:
    """Whether devices that the board does not read could serve the pod. Shares of a card are
    amounts only once the card is known, which structured parameters have no words for."""
    return state.fleet.says_more and not any(ask.percents for ask in wanted.asks)
