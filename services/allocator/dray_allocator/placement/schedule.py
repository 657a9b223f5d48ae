"""Schedules a pod: filters and scores the nodes, and picks devices on the best node.

The node table decides the pods and devices of its scope (``devices.table_scope``) exactly as the
search would, only faster; a property test holds it to the search. For one card without constraints
and preferences, its index and the device usage are enough (``_one_card``). The search decides all
others, once per class of nodes.
"""

from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.device_requests import Share
from dray_allocator.devices.links import NOT_CONNECTED
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.nodes.plan import filter_plan
from dray_allocator.nodes.ratings import Scoring
from dray_allocator.placement.choice import Choice, Pause, best_choice
from dray_allocator.placement.class_search import NodeSearch
from dray_allocator.placement.learned_policy import learned_scoring
from dray_allocator.placement.node_filter import passes
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.placement.preferred_nodes import QUESTIONS
from dray_allocator.placement.table_search import IndexedNodes, NamedNodes
from dray_allocator.scoring.topology import must_be_connected
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


def find(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> Choice | None:
    """The best node on which everything fits, or None."""
    choice = schedule_pod(state, domain, wanted, None)
    return None if isinstance(choice, Pause) else choice


def schedule_pod(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest, budget: SearchBudget | None
) -> Choice | Pause | None:
    """The best node, None if none fits, or a pause if the search has used up the budget.

    Devices in the scope of the node table come first, if the pod is in its scope; other devices
    only if none of them fits.
    """
    if not wanted.in_full:
        choice = choose(state, domain, wanted)
        if choice is not None or not may_use_other_devices(state, wanted):
            return choice
    return NodeSearch(state, domain, wanted, budget).choice()


def may_fit(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> bool:
    """Whether a node may fit a pod that fitted nowhere: the node changed, or its search did not
    end."""
    if not wanted.in_full:
        if index_of(state, domain, wanted).best() >= 0:
            return True
        if not may_use_other_devices(state, wanted):
            return False
    return NodeSearch(state, domain, wanted).is_open()


def choose(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> Choice | None:
    """The best node on which everything fits, by what the node table reads, or None."""
    if wanted.fixed_node or wanted.reach or wanted.named_nodes is not None:
        scoring = _scoring(state, domain, wanted)
        return best_choice(NamedNodes(state, domain, wanted, scoring))
    if wanted.prefers:
        state.tables.of(domain.name).distinguish_cards(QUESTIONS)
    index = index_of(state, domain, wanted)
    if index.plan.is_single and not wanted.prefers and not wanted.excluded:
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
    table, ask, need = index.table, wanted.asks[0], index.plan.cards[0]
    while (row := index.best()) >= 0:
        node = table.names[row]
        if index.plan.decides_node or passes(state, wanted, node):
            cards, kinds = table.cards_in[row], table.kind_at[table.card_slice(row)]
            for at in index.cards_in_order(row):
                demand = need.demands[kinds[at]]
                if demand is not None and state.device_usage.has_room(cards[at], demand):
                    share = Share(ask, cards[at], demand)
                    return Choice(node, (share,), table.cards, NOT_CONNECTED)
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


def _scoring(state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> Scoring:
    """FragmentationAware scores by the load until it has a workload model."""
    if not wanted.is_aware:
        return wanted.scoring
    return learned_scoring(state, domain) or wanted.scoring


def may_use_other_devices(state: AllocatorState, wanted: PodRequest) -> bool:
    """Whether devices outside the scope of the node table could fit the pod. A pod that requires
    connected devices can't have them."""
    return bool(state.published.beyond_table) and not must_be_connected(
        wanted.asks, wanted.placement
    )
