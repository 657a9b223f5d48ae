"""Changes of a replica's subscriptions. Pure."""

from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.facts import Changes
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
    """Follow the logs of newly subscribed pools, and forget the others.

    Forgotten claims are neither deleted nor void: another replica decides them.
    """
    state.subscriptions.subscribe(event.pools, state.facts.position)
    state.all_unread()
    takes = state.subscriptions.takes
    left = [name for name in state.domains if not takes(name)]
    joined = [name for name in state.unread_domains if takes(name)]
    if event.pools is not None:
        _forget(state, left)
    for name in joined:
        state.add(state.unread_domains.pop(name))
    effects: list[Effect] = [Unfollow(name) for name in left]
    follows = (state.domains[name] for name in joined)
    return [*effects, *(Follow(one.name, one.epoch, one.start) for one in follows)]


def fold_earlier(state: AllocatorState, event: EarlierFact) -> None:
    """Apply an earlier fact, unless a newer fact of the object is known."""
    if state.subscriptions.awaits(event.fact.subject_pool()):
        state.apply(event.sequence, event.fact)


def earlier_read(state: AllocatorState, event: EarlierFactsRead) -> None:
    """Record that all earlier facts of some pools are known."""
    state.subscriptions.read(event.pools, event.sequence)


def _forget(state: AllocatorState, left: list[str]) -> None:
    # Undecodable facts of a pool are forgotten with it; they would be read again.
    undecodable = {name: state.undecodable_for(name) for name in left}
    claims, pods = state.facts.forget_pools(state.subscriptions.takes)
    for uid in (*claims, *pods):
        state.pool_dependencies.forget(uid)
    for name in left:
        known = state.domains.pop(name)
        state.index.appending.pop(name, None)
        log = known.current
        claims += (*log.claims, *log.held_claims)
        pods += (*log.pods, *log.held_nodes)
        state.unread_domains[name] = SchedulingDomain(
            name,
            known.epoch,
            start=known.start,
            unnamed=known.unnamed,
            renamed=known.renamed,
            undecodable=undecodable[name],
        )
        if undecodable[name]:
            state.index.undecodable[name] = None
    state.requeue(Changes(tuple(dict.fromkeys(claims)), tuple(dict.fromkeys(pods))))
