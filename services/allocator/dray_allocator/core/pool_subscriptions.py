"""Changes of subscriptions: pools that a replica begins to read, or forgets. Pure."""

from dray_allocator.state.apply import apply
from dray_allocator.state.domain import Domain
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    EarlierFact,
    EarlierFactsRead,
    Effect,
    Follow,
    Subscribe,
    Unfollow,
)


def subscribe(state: AllocatorState, event: Subscribe) -> list[Effect]:
    """Take the facts and logs of other pools in than before.

    What is forgotten is neither gone nor void: another replica decides upon it.
    """
    state.subscriptions.subscribe(event.pools, state.facts.position)
    takes = state.subscriptions.takes
    left = [name for name in state.domains if not takes(name)]
    come = [name for name in state.elsewhere if takes(name)]
    if event.pools is not None:
        _forget(state, left)
    for name in come:
        state.domains[name] = state.elsewhere.pop(name)
    effects: list[Effect] = [Unfollow(name) for name in left]
    return [*effects, *(Follow(name, state.domains[name].epoch) for name in come)]


def fold_earlier(state: AllocatorState, event: EarlierFact) -> None:
    """Take a fact in out of turn; newer ones of the same object stay."""
    if state.subscriptions.awaits(event.fact.subject_pool()):
        apply(state, event.sequence, event.fact)


def earlier_read(state: AllocatorState, event: EarlierFactsRead) -> None:
    """All earlier facts of some pools are known."""
    state.subscriptions.read(event.pools, event.sequence)


def _forget(state: AllocatorState, left: list[str]) -> None:
    # What can't be decoded of a pool is forgotten with it, and would be met again.
    undecodable = {name: state.undecodable_for(name) for name in left}
    claims, pods = state.facts.forget_pools(state.subscriptions.takes)
    for uid in (*claims, *pods):
        state.ties.forget(uid)
    for name in left:
        known = state.domains.pop(name)
        claims += known.current.claims
        pods += known.current.pods
        state.elsewhere[name] = Domain(
            name,
            known.epoch,
            unnamed=known.unnamed,
            renamed=known.renamed,
            undecodable=undecodable[name],
        )
    for uid in dict.fromkeys(claims):
        state.refresh_claim(uid)
    for uid in dict.fromkeys(pods):
        state.refresh_hold(uid)
        state.refresh_pod(uid)
