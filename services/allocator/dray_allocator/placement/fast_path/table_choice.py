"""The best node and its devices, by the node table. See the package.

For one card without constraints and preferences, the index of the table and the device usage are
enough (``_one_card``).
"""

from dray_allocator.devices.device_requests import Share
from dray_allocator.devices.links import NOT_CONNECTED
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.nodes.plan import filter_plan
from dray_allocator.nodes.ratings import Scoring
from dray_allocator.placement.choice import Choice, best_choice
from dray_allocator.placement.fast_path.preferred_nodes import QUESTIONS
from dray_allocator.placement.fast_path.table_nodes import IndexedNodes, NamedNodes
from dray_allocator.placement.learned_policy import learned_scoring
from dray_allocator.placement.node_filter import passes
from dray_allocator.placement.pod_request import PodPattern, PodRequest
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


def choose(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> Choice | None:
    """The best node on which everything fits, or None."""
    pattern = wanted.pattern
    if wanted.fixed_node or wanted.reach or pattern.named_nodes is not None:
        scoring = _scoring(state, domain, pattern)
        return best_choice(NamedNodes(state, domain, wanted, scoring))
    if pattern.prefers:
        state.tables.of(domain.name).distinguish_cards(QUESTIONS)
    index = index_of(state, domain, wanted)
    if index.plan.is_single and not pattern.prefers and not wanted.excluded:
        return _one_card(state, index, wanted)
    for node in wanted.excluded:
        if node in index.table.rows:
            index.skip(index.table.rows[node])
    choice = best_choice(IndexedNodes(state, index, wanted))
    index.restore_skipped()
    return choice


def _one_card(state: AllocatorState, index: NodeIndex, wanted: PodRequest) -> Choice | None:
    """Fast path of ``IndexedNodes``: one card, no constraint, no preference.

    The columns of the table are rounded; the device usage is exact.
    """
    table, ask, need = index.table, wanted.pattern.asks[0], index.plan.cards[0]
    while (row := index.best()) >= 0:
        node = table.names[row]
        if index.plan.decides_node or passes(state, wanted, node):
            cards, first = table.cards_in[row], table.first_at[row]
            for at in index.cards_in_order(row):
                demand = need.demands[table.kind_at[first + at]]
                if demand is not None and state.device_usage.has_room(cards[at], demand):
                    share = Share(ask, cards[at], demand)
                    return Choice(node, (share,), table.cards, NOT_CONNECTED)
        index.exclude(row)
    return None


def index_of(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> NodeIndex:
    """The nodes of the domain, in the order of their scores for pods of this signature."""
    pattern, selectors = wanted.pattern, state.selectors
    return state.tables.index(
        domain.name,
        pattern.signature,
        scoring=_scoring(state, domain, pattern),
        plan=lambda table: filter_plan(
            table, selectors, pattern.asks, pattern.needs, alone=pattern.alone
        ),
        selectors=selectors,
    )


def _scoring(state: AllocatorState, domain: SchedulingDomain, pattern: PodPattern) -> Scoring:
    """FragmentationAware scores by the load until it has a workload model."""
    if not pattern.is_aware:
        return pattern.scoring
    return learned_scoring(state, domain) or pattern.scoring
