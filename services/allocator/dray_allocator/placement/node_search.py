"""Whether a pod fits on one node, and on which of its cards: what decides after the table."""

from dray.api.placement import HARD
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.device_requests import DeviceRequirements, Share, has_room
from dray_allocator.devices.links import NOT_CONNECTED
from dray_allocator.devices.node_devices import Card
from dray_allocator.devices.node_search import DeviceSearch, Found
from dray_allocator.devices.ordered_search import Rating
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.nodes.predicates import fits
from dray_allocator.nodes.ratings import NodeScore
from dray_allocator.nodes.table import NodeTable
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.preference import card_key
from dray_allocator.scoring.topology import concerns
from dray_allocator.state.state import AllocatorState


def filter_node(state: AllocatorState, wanted: PodRequest, node: str) -> bool:
    """Whether the node takes the pod, its devices aside."""
    fact, held, given = state.facts.nodes[node].node, state.assumed_pods.on(node), state.facts.given
    return fits(wanted.pod.needs, fact, held, alone=wanted.alone, given=given)


def is_searched(state: AllocatorState, wanted: PodRequest, node: str) -> bool:
    """Whether it takes a search to find cards that are connected well enough."""
    return wanted.placement.topology == HARD or state.published.of(node).names_links


def pick_devices(
    state: AllocatorState, index: NodeIndex, ask: DeviceRequirements, row: int
) -> Found | None:
    """The fast path: one request without constraints takes the best cards, one by one.

    Where amounts are rounded in the columns, the device usage decides.
    """
    table, need, device_usage = index.table, index.plan.cards[0], state.device_usage
    cards, suiting = table.cards_in[row], index.suiting_of(row)
    found: list[Share] = []
    for at in suiting if len(suiting) < 2 else index.score.order(table, row, suiting):
        card = cards[at]
        consumed = need.ask.of(card)
        if consumed is not None and has_room(device_usage, card, consumed):
            found.append(Share(ask, card, consumed))
            if len(found) == need.count:
                return Found(tuple(found), NOT_CONNECTED)
    return None


def search_node(
    state: AllocatorState,
    wanted: PodRequest,
    score: NodeScore,
    table: NodeTable,
    row: int,
    budget: SearchBudget,
) -> Found | None:
    """Devices for every request of every claim together, constraints and all."""
    node, rank = table.names[row], score.rank(table, row)
    ties = table.card_tie_at[table.stretch(row)].tolist()

    def rate(ask: DeviceRequirements, card: Card) -> Rating:
        key = card_key(ask.preference, card.device) if ask.preference else ()
        return key, rank(ask, card), ties[card.index]

    asks, topology = wanted.asks, wanted.placement.topology
    connects = concerns(asks, topology) and is_searched(state, wanted, node)
    search = DeviceSearch(asks, wanted.plan, state.device_usage, state.selectors, rate, budget)
    return search.best(state.published.of(node), connects=connects, must=topology == HARD)
