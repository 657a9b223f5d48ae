"""The node and the devices of a pod: node first, then card, both by the pool's mode."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dray.domain.claims import AllocatedDevice, Allocation, Claim, first_attempt
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_allocator.board.index import Index, key_of
from dray_allocator.board.plan import plan_of
from dray_allocator.domain import Domain
from dray_allocator.fit.devices import Card
from dray_allocator.fit.search import (
    FIRST_STEPS,
    STEPS,
    Ask,
    Search,
    Share,
    Tries,
    has_room,
)
from dray_allocator.node.predicates import fits
from dray_allocator.placement.ask import Wanted, config_of
from dray_allocator.placement.liking import QUESTIONS, Liked, in_order
from dray_allocator.placement.modes import card_load, fills, tie
from dray_allocator.placement.preference import Key, card_key, cards_key
from dray_allocator.state import AllocatorState


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the pod goes."""

    node: str
    shares: tuple[Share, ...]
    considered_devices: int


def choose(state: AllocatorState, domain: Domain, wanted: Wanted) -> Choice | None:
    """The best node on which everything fits, or None."""
    if wanted.fixed_node or wanted.named_nodes is not None:
        nodes = candidates(state, domain, wanted)
        return _preferred(wanted, _among(state, domain, wanted, nodes))
    if wanted.prefers:
        state.boards.of(domain.name).tell_cards_apart(QUESTIONS)
    index = index_of(state, domain, wanted)
    for node in wanted.excluded:
        if node in index.board.rows:
            index.lay_aside(index.board.rows[node])
    liked = in_order(index, wanted.asks) if wanted.prefers else None
    if liked is not None:
        choice = _liked(state, index, wanted, liked)
    else:
        choice = _preferred(wanted, _by_index(state, index, wanted))
    index.restore()
    return choice


def index_of(state: AllocatorState, domain: Domain, wanted: Wanted) -> Index:
    """The nodes of the domain in the order in which pods like this one prefer them."""
    return state.boards.index(
        domain.name,
        wanted.signature,
        fills=fills(state.facts.placement(domain.name)[0]),
        plan=lambda board: plan_of(
            board, state.selectors, wanted.asks, wanted.pod.needs, alone=wanted.alone
        ),
        selectors=state.selectors,
    )


def candidates(state: AllocatorState, domain: Domain, wanted: Wanted) -> list[str]:
    """Nodes of the domain where the pod may go as far as its claims and its own words say."""
    facts = state.facts
    if wanted.fixed_node:
        return [wanted.fixed_node] if facts.serves(wanted.fixed_node, domain.name) else []
    if wanted.named_nodes is None:
        nodes = facts.served_nodes(domain.name)
    else:
        nodes = [node for node in wanted.named_nodes if facts.serves(node, domain.name)]
    return [node for node in nodes if node not in wanted.excluded] if wanted.excluded else nodes


def decision_of(
    state: AllocatorState, domain: Domain, wanted: Wanted, choice: Choice
) -> PodDecision:
    """The choice as it is written to the log."""
    pod = wanted.pod
    return PodDecision(
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=choice.node,
        binder=pod.binder,
        claims=tuple(_claim(state, domain, claim, choice) for claim in wanted.claims),
        cpu_milli=pod.needs.cpu_milli,
        memory_bytes=pod.needs.memory_bytes,
        request_id=pod.request_id,
        traceparent=pod.traceparent,
        considered_devices=choice.considered_devices,
        resources=pod.needs.resources,
        ports=pod.needs.ports,
    )


def _preferred(wanted: Wanted, choices: Iterator[Choice]) -> Choice | None:
    """The first, or the one with the cards that the pod would rather have."""
    if not wanted.prefers:
        return next(choices, None)

    # Of equals the first, which the mode ranks higher.
    return min(choices, key=lambda choice: _worth(choice.shares), default=None)


def _worth(shares: Sequence[Share]) -> tuple[Key, ...]:
    return cards_key(card_key(share.ask.preference, share.card.device) for share in shares)


def _liked(
    state: AllocatorState, index: Index, wanted: Wanted, nodes: Iterator[Liked]
) -> Choice | None:
    """The node with the cards that the pod would rather have, of nodes in the order of what they
    are worth at best; those that are hard to search are tried last."""
    board, tries, hard = index.board, Tries(), []
    best: tuple[tuple[Key, ...], int, str] | None = None
    choice: Choice | None = None
    for steps in (FIRST_STEPS, STEPS):
        for one in nodes:
            if best is not None and one[:3] >= best:
                break
            node = board.names[one.row]
            if not _takes(state, wanted, node):
                index.rule_out(one.row)
                continue
            shares = _searched(state, wanted, node, index.fills, tries.at_most(steps))
            if shares is not None:
                found = (_worth(shares), one.key, one.uid)
                if best is None or found < best:
                    best, choice = found, Choice(node, shares, board.cards)
            elif tries.ran_out and steps == FIRST_STEPS:
                hard.append(one)
            elif tries.pod:  # else it had not its full number of tries
                index.rule_out(one.row)
        nodes = iter(hard)
    return choice


def _by_index(state: AllocatorState, index: Index, wanted: Wanted) -> Iterator[Choice]:
    """Nodes on which an exact look agrees with the index, the best first, those last that are
    hard to search. Where it doesn't agree, a node is passed over until it changes."""
    board, tries, hard = index.board, Tries(), []
    is_simple = index.plan.is_simple and not wanted.prefers
    while (row := index.best()) >= 0:
        node = board.names[row]
        if not _takes(state, wanted, node):
            index.rule_out(row)
            continue
        if is_simple:
            shares = _picked(state, index, wanted.asks[0], row)
        else:
            shares = _searched(state, wanted, node, index.fills, tries.at_most(FIRST_STEPS))
        if shares is not None:
            index.lay_aside(row)
            yield Choice(node, shares, board.cards)
        elif not is_simple and tries.ran_out:
            index.lay_aside(row)
            hard.append(row)
        else:
            index.rule_out(row)
    for row in hard:
        node = board.names[row]
        shares = _searched(state, wanted, node, index.fills, tries.at_most(STEPS))
        if shares is not None:
            yield Choice(node, shares, board.cards)
        elif tries.pod:  # else it had not its full number of tries
            index.rule_out(row)


def _among(
    state: AllocatorState, domain: Domain, wanted: Wanted, nodes: Sequence[str]
) -> Iterator[Choice]:
    """Those of a few nodes on which everything fits, the best first."""
    is_filling, tries = fills(state.facts.placement(domain.name)[0]), Tries()
    board = state.boards.of(domain.name)
    considered = sum(len(state.fleet.of(node).cards) for node in nodes)
    for node in sorted(nodes, key=lambda one: key_of(board, board.rows[one], fills=is_filling)):
        if _takes(state, wanted, node):
            shares = _searched(state, wanted, node, is_filling, tries.at_most(STEPS))
            if shares is not None:
                yield Choice(node, shares, considered)


def _takes(state: AllocatorState, wanted: Wanted, node: str) -> bool:
    """Whether the node takes the pod, its devices aside."""
    fact, held, given = state.facts.nodes[node].node, state.holds.on(node), state.facts.given
    return fits(wanted.pod.needs, fact, held, alone=wanted.alone, given=given)


def _picked(state: AllocatorState, index: Index, ask: Ask, row: int) -> tuple[Share, ...] | None:
    """The fast lane: one request without constraints takes the best cards, one by one.

    Where amounts are rounded in the columns, the ledger has the last word.
    """
    board, need = index.board, index.plan.cards[0]
    here, sign = board.stretch(row), -1 if index.fills else 1
    loads, ties = board.load[here].tolist(), board.card_tie[here].tolist()
    suiting = index.suiting_of(row).nonzero()[0].tolist()
    order = [(sign * loads[at], ties[at], at) for at in suiting]
    order.sort()
    cards = state.fleet.of(board.names[row]).cards
    found: list[Share] = []
    for _, _, at in order:
        consumed = need.ask.of(cards[at])
        if consumed is not None and has_room(state.ledger, cards[at], consumed, ()):
            found.append(Share(ask, cards[at], consumed))
            if len(found) == need.count:
                return tuple(found)
    return None


def _searched(
    state: AllocatorState, wanted: Wanted, node: str, is_filling: bool, tries: Tries
) -> tuple[Share, ...] | None:
    """The exact lane: every request of every claim together, constraints and all."""
    ledger = state.ledger

    def preference(ask: Ask, card: Card) -> tuple[Key, int, int]:
        key = card_key(ask.preference, card.device) if ask.preference else ()
        load = card_load(card, ledger.of(card.id))
        return key, -load if is_filling else load, tie(card.name)

    search = Search(ledger, preference, tries)
    shares = search.place(wanted.asks, state.fleet.of(node), state.selectors)
    return None if shares is None else tuple(shares)


def _claim(state: AllocatorState, domain: Domain, claim: Claim, choice: Choice) -> ClaimDecision:
    shares = [share for share in choice.shares if share.ask.claim_uid == claim.uid]
    devices = tuple(
        AllocatedDevice(share.ask.request.name, share.card.id, None, dict(share.consumed.text))
        for share in shares
    )
    return ClaimDecision(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        attempt=_next_attempt(domain, claim),
        allocation=Allocation(devices, choice.node, config_of(state, claim)),
    )


def _next_attempt(domain: Domain, claim: Claim) -> int:
    known = domain.current.claims.get(claim.uid)
    highest = max(known.attempt if known else 0, claim.marked)
    return max(first_attempt(domain.epoch), highest + 1)
