"""Whether a pod fits on one node, and on which of its cards: the exact look behind the board."""

from dray.domain.placement import HARD
from dray_allocator.board.index import Index
from dray_allocator.fit.devices import Card
from dray_allocator.fit.search import Ask, Search, Share, Tries, has_room
from dray_allocator.node.predicates import fits
from dray_allocator.placement.ask import Wanted
from dray_allocator.placement.modes import tie
from dray_allocator.placement.preference import Key, card_key
from dray_allocator.placement.scores import Rank
from dray_allocator.placement.topology import APART, Found, best_set, concerns, has_joints
from dray_allocator.state import AllocatorState


def takes(state: AllocatorState, wanted: Wanted, node: str) -> bool:
    """Whether the node takes the pod, its devices aside."""
    fact, held, given = state.facts.nodes[node].node, state.holds.on(node), state.facts.given
    return fits(wanted.pod.needs, fact, held, alone=wanted.alone, given=given)


def is_searched(state: AllocatorState, wanted: Wanted, node: str) -> bool:
    """Whether it takes a search to find cards that are joined well enough."""
    return wanted.placement.topology == HARD or has_joints(state.fleet.of(node).cards)


def picked(state: AllocatorState, index: Index, ask: Ask, row: int) -> Found | None:
    """The fast lane: one request without constraints takes the best cards, one by one.

    Where amounts are rounded in the columns, the ledger has the last word.
    """
    board, need, ledger = index.board, index.plan.cards[0], state.ledger
    cards, suiting = board.cards_in[row], index.suiting_of(row)
    found: list[Share] = []
    for at in suiting if len(suiting) < 2 else index.score.order(board, row, suiting):
        card = cards[at]
        consumed = need.ask.of(card)
        if consumed is not None and has_room(ledger, card, consumed, ()):
            found.append(Share(ask, card, consumed))
            if len(found) == need.count:
                return Found(tuple(found), APART)
    return None


def searched(
    state: AllocatorState, wanted: Wanted, node: str, rank: Rank, tries: Tries
) -> Found | None:
    """The exact lane: every request of every claim together, constraints and all."""
    ledger = state.ledger

    def preference(ask: Ask, card: Card) -> tuple[Key, int, int]:
        key = card_key(ask.preference, card.device) if ask.preference else ()
        return key, rank(ask, card), tie(card.name)

    search, asks, devices = Search(ledger, preference, tries), wanted.asks, state.fleet.of(node)
    candidates = search.candidates(asks, devices, state.selectors)
    if candidates is None:
        return None
    if concerns(asks, wanted.placement.topology) and is_searched(state, wanted, node):
        return best_set(search, asks, candidates, wanted.placement.topology)
    shares = search.fill(asks, candidates)
    return None if shares is None else Found(shares, APART)
