"""The node and the devices of a pod: node first, then card, both by the pool's mode."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dray.domain.claims import AllocatedDevice, Allocation, Claim, first_attempt
from dray.domain.dra.nodes import Node, Reach
from dray.domain.dra.results import AllocationResult
from dray.domain.placement import HARD
from dray.domain.pods import PodNeeds
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_allocator.board.board import Board
from dray_allocator.board.index import Index
from dray_allocator.board.plan import Plan, plan_of
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
from dray_allocator.lane.asking import allocation_of
from dray_allocator.node.predicates import fits
from dray_allocator.placement.ask import Wanted, config_of
from dray_allocator.placement.liking import QUESTIONS, Liked, in_order
from dray_allocator.placement.modes import tie
from dray_allocator.placement.policies import scoring_of
from dray_allocator.placement.policy import learned_scoring
from dray_allocator.placement.preference import Key, card_key, cards_key
from dray_allocator.placement.scores import NodeScore, Rank, Scoring
from dray_allocator.placement.topology import (
    APART,
    BY_NVLINK,
    Found,
    best_set,
    concerns,
    has_joints,
)
from dray_allocator.state import AllocatorState
from dray_allocator.structured.errors import AllocationError
from dray_allocator.structured.nodes import is_reached

JOINT_NODES: Final = 8
"""Nodes that are compared, the best by score, for cards that NVLink joins."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the pod goes."""

    node: str
    shares: tuple[Share, ...]
    considered_devices: int
    grade: int = 0
    """Of the joints between its cards; 0 is best."""
    results: tuple[AllocationResult, ...] = ()
    """What each claim gets, where structured parameters decided; else ``shares`` tell."""


def choose(state: AllocatorState, domain: Domain, wanted: Wanted) -> Choice | None:
    """The best node on which everything fits, by what the board reads, or None."""
    if wanted.fixed_node or wanted.reach or wanted.named_nodes is not None:
        nodes = candidates(state, domain, wanted)
        board = state.boards.of(domain.name)
        return _preferred(board, wanted, _among(state, domain, wanted, nodes))
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
        choice = _preferred(index.board, wanted, _by_index(state, index, wanted))
    index.restore()
    return choice


def index_of(state: AllocatorState, domain: Domain, wanted: Wanted) -> Index:
    """The nodes of the domain in the order in which pods like this one prefer them."""
    return state.boards.index(
        domain.name,
        wanted.signature,
        scoring=_scoring(state, domain, wanted),
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
    if wanted.reach:
        nodes = [node for node in nodes if is_reached_by(state, wanted, node)]
    return [node for node in nodes if node not in wanted.excluded] if wanted.excluded else nodes


def is_reached_by(state: AllocatorState, wanted: Wanted, name: str) -> bool:
    """Whether a node can use what the pod's other claims hold already."""
    node = Node(name, state.facts.nodes[name].node.labels)
    try:
        return all(is_reached(Reach(selector=one), node) for one in wanted.reach)
    except AllocationError:
        return False


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
        claims=tuple(
            _claim(domain, claim, _allocation(state, claim, index, choice))
            for index, claim in enumerate(wanted.claims)
        ),
        cpu_milli=pod.needs.cpu_milli,
        memory_bytes=pod.needs.memory_bytes,
        request_id=pod.request_id,
        traceparent=pod.traceparent,
        considered_devices=choice.considered_devices,
        resources=pod.needs.resources,
        ports=pod.needs.ports,
    )


def _preferred(board: Board, wanted: Wanted, choices: Iterator[Choice]) -> Choice | None:
    """The first, or the one with the cards that the pod would rather have, or of the first few
    the one whose cards are joined best; of equals the first, which the mode ranks higher."""
    if wanted.prefers:
        return min(choices, key=_preference, default=None)
    if not concerns(wanted.asks, wanted.placement.topology):
        return next(choices, None)
    best: Choice | None = None
    for choice in islice(choices, JOINT_NODES if board.linked else 1):
        if best is None or choice.grade < best.grade:
            best = choice
        if best.grade < BY_NVLINK:
            break
    return best


def _preference(choice: Choice) -> tuple[tuple[Key, ...], int]:
    return _worth(choice.shares), choice.grade


def _worth(shares: Sequence[Share]) -> tuple[Key, ...]:
    return cards_key(card_key(share.ask.preference, share.card.device) for share in shares)


def _liked(
    state: AllocatorState, index: Index, wanted: Wanted, nodes: Iterator[Liked]
) -> Choice | None:
    """The node with the cards that the pod would rather have, of equals the one whose cards are
    joined best, of nodes in the order of what they are worth at best; those that are hard to
    search are tried last."""
    board, tries, hard = index.board, Tries(), []
    best: tuple[tuple[Key, ...], int, int, str] | None = None
    choice: Choice | None = None
    for steps in (FIRST_STEPS, STEPS):
        for one in nodes:
            node = board.names[one.row]
            if best is not None:
                if one.at_best(_least_grade(board, wanted)) >= best:
                    break
                if one.at_best(_least_grade_on(state, board, wanted, node)) >= best:
                    continue
            if not _takes(state, wanted, node):
                index.rule_out(one.row)
                continue
            rank = index.score.rank(board, one.row)
            found = _searched(state, wanted, node, rank, tries.at_most(steps))
            if found is not None:
                rated = (_worth(found.shares), found.grade, one.key, one.uid)
                if best is None or rated < best:
                    best, choice = rated, Choice(node, found.shares, board.cards, found.grade)
            elif tries.ran_out and steps == FIRST_STEPS:
                hard.append(one)
            elif tries.pod:  # else it had not its full number of tries
                index.rule_out(one.row)
        nodes = iter(hard)
    return choice


def _least_grade(board: Board, wanted: Wanted) -> int:
    """The best grade that there may be on any node."""
    if not concerns(wanted.asks, wanted.placement.topology):
        return APART
    return 0 if board.linked else BY_NVLINK


def _least_grade_on(state: AllocatorState, board: Board, wanted: Wanted, node: str) -> int:
    """The best grade that there may be on a node."""
    least = _least_grade(board, wanted)
    return least if least < APART and _is_searched(state, wanted, node) else APART


def _by_index(state: AllocatorState, index: Index, wanted: Wanted) -> Iterator[Choice]:
    """Nodes on which an exact look agrees with the index, the best first, those last that are
    hard to search. Where it doesn't agree, a node is passed over until it changes."""
    board, tries, hard = index.board, Tries(), []
    is_simple = index.plan.is_simple and not wanted.prefers
    is_joint = concerns(wanted.asks, wanted.placement.topology)
    while (row := index.best()) >= 0:
        node = board.names[row]
        if not _takes(state, wanted, node):
            index.rule_out(row)
            continue
        tries.at_most(FIRST_STEPS)
        if is_simple and not (is_joint and _is_searched(state, wanted, node)):
            found = _picked(state, index, wanted.asks[0], row)
        else:
            found = _searched(state, wanted, node, index.score.rank(board, row), tries)
        if found is not None:
            yield Choice(node, found.shares, board.cards, found.grade)
            index.lay_aside(row)  # Only where another choice is wanted.
        elif tries.ran_out:
            index.lay_aside(row)
            hard.append(row)
        else:
            index.rule_out(row)
    for row in hard:
        node = board.names[row]
        rank = index.score.rank(board, row)
        found = _searched(state, wanted, node, rank, tries.at_most(STEPS))
        if found is not None:
            yield Choice(node, found.shares, board.cards, found.grade)
        elif tries.pod:  # else it had not its full number of tries
            index.rule_out(row)


def _among(
    state: AllocatorState, domain: Domain, wanted: Wanted, nodes: Sequence[str]
) -> Iterator[Choice]:
    """Those of a few nodes on which everything fits, the best first."""
    board, tries = state.boards.of(domain.name), Tries()
    rows = [board.rows[node] for node in nodes]
    considered = sum(board.count.item(row) for row in rows)
    plan, score = _score_of(state, domain, wanted)

    def key(row: int) -> tuple[int, int, str]:
        suiting = [need.suiting(board, board.stretch(row)) for need in plan.cards]
        return score.of(board, row, suiting), board.tie.item(row), board.uid(row)

    for row in rows if len(rows) < 2 else sorted(rows, key=key):
        node = board.names[row]
        if _takes(state, wanted, node):
            rank = score.rank(board, row)
            found = _searched(state, wanted, node, rank, tries.at_most(STEPS))
            if found is not None:
                yield Choice(node, found.shares, considered, found.grade)


def _scoring(state: AllocatorState, domain: Domain, wanted: Wanted) -> Scoring:
    """FragmentationAware fills what is loaded until something is learned."""
    return learned_scoring(state, domain, wanted.placement) or scoring_of(wanted.placement)


def _score_of(state: AllocatorState, domain: Domain, wanted: Wanted) -> tuple[Plan, NodeScore]:
    """How the pod rates single nodes. Its own words about nodes are left out: each pod of a
    DaemonSet names another one."""
    needs = PodNeeds(
        cpu_milli=wanted.pod.needs.cpu_milli, memory_bytes=wanted.pod.needs.memory_bytes
    )
    return state.boards.score(
        domain.name,
        b"%d|%d|" % (needs.cpu_milli, needs.memory_bytes) + wanted.devices_signature,
        scoring=_scoring(state, domain, wanted),
        plan=lambda board: plan_of(board, state.selectors, wanted.asks, needs, alone=False),
        selectors=state.selectors,
    )


def _takes(state: AllocatorState, wanted: Wanted, node: str) -> bool:
    """Whether the node takes the pod, its devices aside."""
    fact, held, given = state.facts.nodes[node].node, state.holds.on(node), state.facts.given
    return fits(wanted.pod.needs, fact, held, alone=wanted.alone, given=given)


def _is_searched(state: AllocatorState, wanted: Wanted, node: str) -> bool:
    """Whether it takes a search to find cards that are joined well enough."""
    return wanted.placement.topology == HARD or has_joints(state.fleet.of(node).cards)


def _picked(state: AllocatorState, index: Index, ask: Ask, row: int) -> Found | None:
    """The fast lane: one request without constraints takes the best cards, one by one.

    Where amounts are rounded in the columns, the ledger has the last word.
    """
    board, need = index.board, index.plan.cards[0]
    suiting = index.suiting_of(row).nonzero()[0].tolist()
    cards = state.fleet.of(board.names[row]).cards
    found: list[Share] = []
    for at in index.score.order(board, row, suiting):
        consumed = need.ask.of(cards[at])
        if consumed is not None and has_room(state.ledger, cards[at], consumed, ()):
            found.append(Share(ask, cards[at], consumed))
            if len(found) == need.count:
                return Found(tuple(found), APART)
    return None


def _searched(
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
    if concerns(asks, wanted.placement.topology) and _is_searched(state, wanted, node):
        return best_set(search, asks, candidates, wanted.placement.topology)
    shares = search.fill(asks, candidates)
    return None if shares is None else Found(shares, APART)


def _allocation(state: AllocatorState, claim: Claim, index: int, choice: Choice) -> Allocation:
    if choice.results:
        return allocation_of(choice.results[index])
    shares = [share for share in choice.shares if share.ask.claim_uid == claim.uid]
    devices = tuple(
        AllocatedDevice(share.ask.request.name, share.card.id, None, dict(share.consumed.text))
        for share in shares
    )
    return Allocation(devices, choice.node, config_of(state, claim))


def _claim(domain: Domain, claim: Claim, allocation: Allocation) -> ClaimDecision:
    return ClaimDecision(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        attempt=_next_attempt(domain, claim),
        allocation=allocation,
    )


def _next_attempt(domain: Domain, claim: Claim) -> int:
    known = domain.current.claims.get(claim.uid)
    highest = max(known.attempt if known else 0, claim.marked)
    return max(first_attempt(domain.epoch), highest + 1)
