"""The nodes of the node table and their cards, for pods and cards of its scope
(``devices.table_scope``)."""

from collections.abc import Iterator, Sequence

from dray.api.placement import HARD
from dray.api.pods import PodNeeds
from dray_allocator.devices.budget import (
    MAX_FIRST_TRIES_BY_TABLE,
    MAX_TRIES_PER_NODE,
    MAX_TRIES_PER_POD,
    SearchBudget,
)
from dray_allocator.devices.device_requests import DeviceRequirements, Share
from dray_allocator.devices.links import BEYOND_NVLINK, NOT_CONNECTED
from dray_allocator.devices.node_search import DeviceSearch, FoundDevices
from dray_allocator.devices.ordered_search import PreferenceKey, Rating, worst_first
from dray_allocator.devices.published_devices import Card
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.nodes.plan import FilterPlan, filter_plan
from dray_allocator.nodes.ratings import NodeScore, Scoring
from dray_allocator.nodes.table import NodeTable
from dray_allocator.placement.choice import CONNECTED_NODES, Choice, Outcome
from dray_allocator.placement.fast_path.preferred_nodes import PreferredNode, in_order
from dray_allocator.placement.node_filter import candidates, passes
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.preference import card_key
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


class IndexedNodes:
    """All nodes of the pool, in the order of an index or of the pod's preference.

    The index is a prefilter: a node that does not fit exactly is left out until it changes.
    """

    def __init__(self, state: AllocatorState, index: NodeIndex, wanted: PodRequest) -> None:
        self.best: Choice | None = None
        self.compared = _compared_nodes(index.table, wanted)
        self._state = state
        self._index = index
        self._wanted = wanted
        self._budget = SearchBudget(MAX_TRIES_PER_POD)
        self._preferred: dict[int, PreferredNode] = {}
        self._is_simple = index.plan.is_simple and not wanted.pattern.prefers

    def rows(self) -> Iterator[int]:
        """See ``CandidateNodes``."""
        index, wanted = self._index, self._wanted
        preferred = in_order(index, wanted.pattern.asks) if wanted.pattern.prefers else None
        return index.in_order() if preferred is None else self._by_preference(preferred)

    def _by_preference(self, nodes: Iterator[PreferredNode]) -> Iterator[int]:
        """The nodes in the order of the best preference that is possible on them."""
        for one in nodes:
            if self.best is not None:
                if one.at_best(self._least_level) >= self.best.rank:
                    return
                if one.at_best(self._least_level_on(one.row)) >= self.best.rank:
                    continue
            self._preferred[one.row] = one
            yield one.row

    def evaluate(self, row: int, *, longer: bool = False) -> Choice | Outcome:
        """See ``CandidateNodes``."""
        index, wanted, node = self._index, self._wanted, self._index.table.names[row]
        if not (longer or index.plan.decides_node or passes(self._state, wanted, node)):
            return Outcome.UNFIT
        on_node = self._budget.part(MAX_TRIES_PER_NODE if longer else MAX_FIRST_TRIES_BY_TABLE)
        if self._is_simple and not _is_searched(wanted, index.table, row):
            found = _pick_cards(self._state, index, wanted.pattern.asks[0], row)
        else:
            found = _search_cards(self._state, wanted, index.score, index.table, row, on_node)
        if found is not None:
            one = self._preferred.get(row)
            order = (0, "") if one is None else (one.key, one.uid)
            return _choice(wanted, node, found, index.table.cards, order)
        if longer:  # If the budget is spent, this node was searched less than others.
            return Outcome.SLOW if self._budget.is_spent else Outcome.UNFIT
        return Outcome.SLOW if on_node.ran_out else Outcome.UNFIT

    def exclude(self, row: int) -> None:
        """See ``CandidateNodes``."""
        self._index.exclude(row)

    @property
    def _least_level(self) -> int:
        """The best link level that any node can have."""
        if not self._wanted.pattern.connects:
            return NOT_CONNECTED
        return 0 if self._index.table.linked else BEYOND_NVLINK

    def _least_level_on(self, row: int) -> int:
        """The best link level that a node can have."""
        is_less = _is_searched(self._wanted, self._index.table, row)
        return self._least_level if is_less else NOT_CONNECTED


class NamedNodes:
    """The few nodes that a pod names, or where its other claims are. They are scored one by one,
    because each pod of a DaemonSet names another node."""

    def __init__(
        self, state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest, scoring: Scoring
    ) -> None:
        nodes = candidates(state, domain, wanted)
        self.best: Choice | None = None
        self._table = table = state.tables.of(domain.name)
        self.compared = _compared_nodes(table, wanted)
        self._state = state
        self._wanted = wanted
        self._rows = [table.rows[node] for node in nodes]
        self._devices = sum(table.count.item(row) for row in self._rows)
        self._plan, self._score = _score_of(state, domain, wanted, scoring)
        self._budget = SearchBudget(MAX_TRIES_PER_POD)

    def rows(self) -> Iterator[int]:
        """See ``CandidateNodes``."""
        rows = self._rows
        return iter(rows if len(rows) < 2 else sorted(rows, key=self._key))

    def _key(self, row: int) -> tuple[int, int, str]:
        table = self._table
        fitting = [need.fitting(table, table.card_slice(row)) for need in self._plan.cards]
        return self._score.of(table, row, fitting), table.tie.item(row), table.uid(row)

    def evaluate(self, row: int, *, longer: bool = False) -> Choice | Outcome:
        """See ``CandidateNodes``. The first search is as long as a later one would be."""
        wanted, node = self._wanted, self._table.names[row]
        if not passes(self._state, wanted, node):
            return Outcome.UNFIT
        on_node = self._budget.part(MAX_TRIES_PER_NODE)
        found = _search_cards(self._state, wanted, self._score, self._table, row, on_node)
        return Outcome.UNFIT if found is None else _choice(wanted, node, found, self._devices)

    def exclude(self, row: int) -> None:
        """See ``CandidateNodes``. There is no index."""


def _compared_nodes(table: NodeTable, wanted: PodRequest) -> int | None:
    """See ``CandidateNodes.compared``."""
    if wanted.pattern.prefers:
        return None
    return CONNECTED_NODES if wanted.pattern.connects and table.linked else 1


def _is_searched(wanted: PodRequest, table: NodeTable, row: int) -> bool:
    """Whether the required or preferred connection of cards needs a search."""
    pattern = wanted.pattern
    is_required = pattern.placement.topology == HARD
    return pattern.connects and (is_required or bool(table.has_links_at[row]))


def _pick_cards(
    state: AllocatorState, index: NodeIndex, ask: DeviceRequirements, row: int
) -> FoundDevices | None:
    """Fast path: one request without constraints takes the best cards, one by one.

    The columns of the table are rounded; the device usage is exact.
    """
    need, found, usage = index.plan.cards[0], list[Share](), state.device_usage
    cards, kinds = index.table.cards_in[row], index.table.kind_at[index.table.card_slice(row)]
    for at in index.cards_in_order(row):
        card, demand = cards[at], need.demands[kinds[at]]
        if demand is not None and usage.has_room(card, demand):
            found.append(Share(ask, card, demand))
            if len(found) == need.count:
                return FoundDevices(tuple(found), NOT_CONNECTED)
    return None


def _search_cards(
    state: AllocatorState,
    wanted: PodRequest,
    score: NodeScore,
    table: NodeTable,
    row: int,
    budget: SearchBudget,
) -> FoundDevices | None:
    """Cards for all requests of all claims together, with their constraints."""
    node, rank = table.names[row], score.rank(table, row)
    ties = table.card_tie_at[table.card_slice(row)].tolist()

    def rate(ask: DeviceRequirements, card: Card) -> Rating:
        key = card_key(ask.preference, card.device) if ask.preference else ()
        return key, rank(card), ties[card.index]

    asks, topology = wanted.pattern.asks, wanted.pattern.placement.topology
    search = DeviceSearch(
        asks, wanted.pattern.plan, state.device_usage, state.selectors, rate, budget
    )
    connects = _is_searched(wanted, table, row)
    return search.best(state.published.of(node), connects=connects, must=topology == HARD)


def _choice(
    wanted: PodRequest,
    node: str,
    found: FoundDevices,
    considered_devices: int,
    order: tuple[int, str] = (0, ""),
) -> Choice:
    keys = _preference_keys(found.shares) if wanted.pattern.prefers else ()
    return Choice(node, found.shares, considered_devices, found.level, (), keys, 0, order)


def _preference_keys(shares: Sequence[Share]) -> tuple[PreferenceKey, ...]:
    return worst_first(card_key(share.ask.preference, share.card.device) for share in shares)


def _score_of(
    state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest, scoring: Scoring
) -> tuple[FilterPlan, NodeScore]:
    """The pod's scores of single nodes. Its node selectors are left out, because each pod of a
    DaemonSet names another node."""
    needs = PodNeeds(
        cpu_milli=wanted.pod.needs.cpu_milli, memory_bytes=wanted.pod.needs.memory_bytes
    )
    return state.tables.score(
        domain.name,
        b"%d|%d|" % (needs.cpu_milli, needs.memory_bytes) + wanted.pattern.devices_signature,
        scoring=scoring,
        plan=lambda table: filter_plan(
            table, state.selectors, wanted.pattern.asks, needs, alone=False
        ),
        selectors=state.selectors,
    )
