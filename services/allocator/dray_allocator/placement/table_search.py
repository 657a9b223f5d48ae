"""Schedules a pod by the node table: first the node, then its devices, both in the placement's
order."""

from collections.abc import Iterator, Sequence
from typing import Final

from dray.api.pods import PodNeeds
from dray_allocator.devices.budget import MAX_TRIES_PER_NODE, MAX_TRIES_PER_POD, SearchBudget
from dray_allocator.devices.device_requests import Share
from dray_allocator.devices.links import BEYOND_NVLINK, NOT_CONNECTED
from dray_allocator.devices.node_search import FoundDevices
from dray_allocator.devices.ordered_search import PreferenceKey, worst_first
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.nodes.plan import FilterPlan, filter_plan
from dray_allocator.nodes.ratings import NodeScore, Scoring
from dray_allocator.nodes.table import NodeTable
from dray_allocator.placement.choice import Choice, best_choice, candidates
from dray_allocator.placement.learned_policy import learned_scoring
from dray_allocator.placement.node_search import filter_node, is_searched, pick_devices, search_node
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.placement.preferred_nodes import QUESTIONS, PreferredNode, in_order
from dray_allocator.scoring.preference import card_key
from dray_allocator.scoring.topology import concerns
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

MAX_TRIES_AT_FIRST: Final = 200
"""Devices tried on a node before the next node. An easy node needs as many as the pod requests."""


def choose(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> Choice | None:
    """The best node on which everything fits, by what the node table reads, or None."""
    if wanted.fixed_node or wanted.reach or wanted.named_nodes is not None:
        nodes = candidates(state, domain, wanted)
        table = state.tables.of(domain.name)
        return _best(table, wanted, _among(state, domain, wanted, nodes))
    if wanted.prefers:
        state.tables.of(domain.name).distinguish_cards(QUESTIONS)
    index = index_of(state, domain, wanted)
    if index.plan.is_single and not wanted.prefers and not wanted.excluded:
        return _one_card(state, index, wanted)
    for node in wanted.excluded:
        if node in index.table.rows:
            index.skip(index.table.rows[node])
    preferred = in_order(index, wanted.asks) if wanted.prefers else None
    if preferred is not None:
        choice = _most_preferred(state, index, wanted, preferred)
    else:
        choice = _best(index.table, wanted, _by_index(state, index, wanted))
    index.restore_skipped()
    return choice


def _one_card(state: AllocatorState, index: NodeIndex, wanted: PodRequest) -> Choice | None:
    """Fast path of ``_by_index``: one card, no constraint, no preference."""
    table, ask, is_decided = index.table, wanted.asks[0], index.plan.decides_node
    while (row := index.best()) >= 0:
        node = table.names[row]
        if is_decided or filter_node(state, wanted, node):
            found = pick_devices(state, index, ask, row)
            if found is not None:
                return Choice(node, found.shares, table.cards, found.level)
        index.exclude(row)
    return None


def index_of(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> NodeIndex:
    """The nodes of the domain, in the order of their scores for pods of this signature."""
    return state.tables.index(
        domain.name,
        wanted.signature,
        scoring=_scoring(state, domain, wanted),
        plan=lambda table: filter_plan(
            table, state.selectors, wanted.asks, wanted.pod.needs, alone=wanted.alone
        ),
        selectors=state.selectors,
    )


def _best(table: NodeTable, wanted: PodRequest, choices: Iterator[Choice]) -> Choice | None:
    connects = concerns(wanted.asks, wanted.placement.topology)
    return best_choice(choices, table, prefers=wanted.prefers, connects=connects)


def _most_preferred(
    state: AllocatorState, index: NodeIndex, wanted: PodRequest, nodes: Iterator[PreferredNode]
) -> Choice | None:
    """The node whose cards the pod prefers most; of equal nodes the one with the best link level.

    ``nodes`` come in the order of the best preference that is possible on them. Slow nodes are
    tried last.
    """
    table, budget, slow = index.table, SearchBudget(MAX_TRIES_PER_POD), []
    best: tuple[tuple[PreferenceKey, ...], int, int, str] | None = None
    choice: Choice | None = None
    for looks in (MAX_TRIES_AT_FIRST, MAX_TRIES_PER_NODE):
        for one in nodes:
            node = table.names[one.row]
            if best is not None:
                if one.at_best(_least_level(table, wanted)) >= best:
                    break
                if one.at_best(_least_level_on(state, table, wanted, node)) >= best:
                    continue
            if not filter_node(state, wanted, node):
                index.exclude(one.row)
                continue
            on_node = budget.part(looks)
            found = search_node(state, wanted, index.score, table, one.row, on_node)
            if found is not None:
                rated = (_worth(found.shares), found.level, one.key, one.uid)
                if best is None or rated < best:
                    best, choice = rated, Choice(node, found.shares, table.cards, found.level)
            elif on_node.ran_out and looks == MAX_TRIES_AT_FIRST:
                slow.append(one)
            elif not budget.is_spent:  # else it was tried for a shorter time than others
                index.exclude(one.row)
        nodes = iter(slow)
    return choice


def _least_level(table: NodeTable, wanted: PodRequest) -> int:
    """The best link level that any node can have."""
    if not concerns(wanted.asks, wanted.placement.topology):
        return NOT_CONNECTED
    return 0 if table.linked else BEYOND_NVLINK


def _least_level_on(state: AllocatorState, table: NodeTable, wanted: PodRequest, node: str) -> int:
    """The best link level that a node can have."""
    least = _least_level(table, wanted)
    return least if least < NOT_CONNECTED and is_searched(state, wanted, node) else NOT_CONNECTED


def _by_index(state: AllocatorState, index: NodeIndex, wanted: PodRequest) -> Iterator[Choice]:
    """Nodes that fit, the best score first, slow nodes last.

    The index is a prefilter: a node that does not fit exactly is left out until it changes.
    """
    table, budget, slow = index.table, SearchBudget(MAX_TRIES_PER_POD), []
    is_simple = index.plan.is_simple and not wanted.prefers
    connects = concerns(wanted.asks, wanted.placement.topology)
    while (row := index.best()) >= 0:
        node = table.names[row]
        if not filter_node(state, wanted, node):
            index.exclude(row)
            continue
        on_node = budget.part(MAX_TRIES_AT_FIRST)
        if is_simple and not (connects and is_searched(state, wanted, node)):
            found = pick_devices(state, index, wanted.asks[0], row)
        else:
            found = search_node(state, wanted, index.score, table, row, on_node)
        if found is not None:
            yield _choice(wanted, node, found, table.cards)
            index.skip(row)  # Only if the caller asks for another choice.
        elif on_node.ran_out:
            index.skip(row)
            slow.append(row)
        else:
            index.exclude(row)
    for row in slow:
        node = table.names[row]
        found = search_node(state, wanted, index.score, table, row, budget.part(MAX_TRIES_PER_NODE))
        if found is not None:
            yield _choice(wanted, node, found, table.cards)
        elif not budget.is_spent:  # else it was tried for a shorter time than others
            index.exclude(row)


def _among(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest, nodes: Sequence[str]
) -> Iterator[Choice]:
    """Those of a few nodes that fit, the best score first."""
    table, budget = state.tables.of(domain.name), SearchBudget(MAX_TRIES_PER_POD)
    rows = [table.rows[node] for node in nodes]
    considered = sum(table.count.item(row) for row in rows)
    plan, score = _score_of(state, domain, wanted)

    def key(row: int) -> tuple[int, int, str]:
        fitting = [need.fitting(table, table.card_slice(row)) for need in plan.cards]
        return score.of(table, row, fitting), table.tie.item(row), table.uid(row)

    for row in rows if len(rows) < 2 else sorted(rows, key=key):
        node = table.names[row]
        if filter_node(state, wanted, node):
            found = search_node(state, wanted, score, table, row, budget.part(MAX_TRIES_PER_NODE))
            if found is not None:
                yield _choice(wanted, node, found, considered)


def _worth(shares: Sequence[Share]) -> tuple[PreferenceKey, ...]:
    return worst_first(card_key(share.ask.preference, share.card.device) for share in shares)


def _choice(wanted: PodRequest, node: str, found: FoundDevices, considered_devices: int) -> Choice:
    worth = _worth(found.shares) if wanted.prefers else ()
    return Choice(node, found.shares, considered_devices, found.level, worth=worth)


def _scoring(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> Scoring:
    """FragmentationAware scores by the load until it has a workload model."""
    if not wanted.is_aware:
        return wanted.scoring
    return learned_scoring(state, domain) or wanted.scoring


def _score_of(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest
) -> tuple[FilterPlan, NodeScore]:
    """The pod's scores of single nodes. Its node selectors are left out, because each pod of a
    DaemonSet names another node."""
    needs = PodNeeds(
        cpu_milli=wanted.pod.needs.cpu_milli, memory_bytes=wanted.pod.needs.memory_bytes
    )
    return state.tables.score(
        domain.name,
        b"%d|%d|" % (needs.cpu_milli, needs.memory_bytes) + wanted.devices_signature,
        scoring=_scoring(state, domain, wanted),
        plan=lambda table: filter_plan(table, state.selectors, wanted.asks, needs, alone=False),
        selectors=state.selectors,
    )
