"""The best node on which `structured` finds devices for all claims of a pod."""

from collections.abc import Sequence

from dray.domain.dra.asks import Claim
from dray.domain.dra.results import AllocationResult
from dray_allocator.domain import Domain
from dray_allocator.lane.asking import claim_of
from dray_allocator.lane.trying import Trying
from dray_allocator.placement.ask import Wanted
from dray_allocator.placement.choose import Choice
from dray_allocator.state import AllocatorState


def choose_in_full(state: AllocatorState, domain: Domain, wanted: Wanted) -> Choice | None:
    """The first node that fits in the order of the placement; where claims list alternatives, the
    one with the most wanted of them."""
    claims = [claim_of(claim) for claim in wanted.claims]
    best: Choice | None = None
    lowest: int | None = None
    seen = 0
    for outcome in Trying(state, domain, wanted).outcomes():
        seen += outcome.devices
        if outcome.results is None:
            continue
        rank = _rank(claims, outcome.results)
        if lowest is None or rank < lowest:
            best, lowest = Choice(outcome.node, (), seen, results=outcome.results), rank
        if not rank:
            break
    return best


def _rank(claims: Sequence[Claim], results: Sequence[AllocationResult]) -> int:
    """How far down their lists of alternatives the claims had to go: 0 is the best."""
    rank = 0
    for claim, result in zip(claims, results, strict=True):
        taken = {device.request for device in result.devices}
        for request in claim.requests:
            names = [f"{request.name}/{one.name}" for one in request.first_available]
            rank += next((at for at, name in enumerate(names) if name in taken), 0)
    return rank
