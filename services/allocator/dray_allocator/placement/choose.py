"""The node and the devices of a pod: node first, then card, both by the pool's mode."""

from collections.abc import Sequence
from dataclasses import dataclass

from dray.domain.claims import AllocatedDevice, Allocation, Claim, first_attempt
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_allocator.board.index import NONE, Index, key_of
from dray_allocator.board.plan import plan_of
from dray_allocator.domain import Domain
from dray_allocator.fit.devices import Card
from dray_allocator.fit.search import Ask, Search, Share, has_room
from dray_allocator.node.predicates import fits
from dray_allocator.placement.ask import Wanted, config_of
from dray_allocator.placement.modes import card_load, fills, tie
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
        return _among(state, domain, wanted, candidates(state, domain, wanted))
    index = index_of(state, domain, wanted)
    board = index.board
    excluded = [board.rows[node] for node in wanted.excluded if node in board.rows]
    aside = [(row, index.key(row)) for row in excluded]
    for row, _ in aside:
        index.set_key(row, NONE)
    choice = _best(state, index, wanted)
    for row, key in aside:
        index.set_key(row, key)
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
    )


def _best(state: AllocatorState, index: Index, wanted: Wanted) -> Choice | None:
    """The best node by the index on which an exact look agrees; others are passed over until
    they change."""
    board = index.board
    while (row := index.best()) >= 0:
        node = board.names[row]
        if fits(
            wanted.pod.needs,
            state.facts.nodes[node].node,
            state.holds.on(node),
            alone=wanted.alone,
        ):
            if index.plan.is_simple:
                shares = _picked(state, index, wanted.asks[0], row)
            else:
                shares = _searched(state, wanted, node, index.fills)
            if shares is not None:
                return Choice(node, shares, board.cards)
        index.set_key(row, NONE)
    return None


def _among(
    state: AllocatorState, domain: Domain, wanted: Wanted, nodes: Sequence[str]
) -> Choice | None:
    """The best of a few nodes."""
    is_filling = fills(state.facts.placement(domain.name)[0])
    board = state.boards.of(domain.name)
    considered = sum(len(state.fleet.of(node).cards) for node in nodes)
    for node in sorted(nodes, key=lambda one: key_of(board, board.rows[one], fills=is_filling)):
        fact, held = state.facts.nodes[node].node, state.holds.on(node)
        if fits(wanted.pod.needs, fact, held, alone=wanted.alone):
            shares = _searched(state, wanted, node, is_filling)
            if shares is not None:
                return Choice(node, shares, considered)
    return None


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
    state: AllocatorState, wanted: Wanted, node: str, is_filling: bool
) -> tuple[Share, ...] | None:
    """The exact lane: every request of every claim together, constraints and all."""
    ledger = state.ledger

    def preference(_: Ask, card: Card) -> tuple[int, int]:
        load = card_load(card, ledger.of(card.id))
        return -load if is_filling else load, tie(card.name)

    search = Search(ledger, preference)
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
