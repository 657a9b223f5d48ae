"""What pods of one signature need, as numbers per kind of card and of node.

Where a selector reads what the node table does not tell apart, it is left out here: more nodes look
as if they fit, and the exact search says which of them do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from dray.api.pods import Node, PodNeeds
from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.node_devices import Card
from dray_allocator.devices.published_capacity import MOST_NANO
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.nodes import equivalence_keys
from dray_allocator.nodes.assumed_pods import NOTHING
from dray_allocator.nodes.columns import Amounts, Flags, Places
from dray_allocator.nodes.predicates import fits
from dray_allocator.nodes.table import NodeTable

_MOST: Final = 2**62
_NOTHING_NEEDED: Final = -np.inf


class Check(NamedTuple):
    """What is taken of a column of ``NodeTable.free``."""

    column: int
    amounts: Amounts | None
    """Per kind; None: the same of every kind that suits."""
    amount: float
    """That one."""


@dataclass(slots=True)
class CardNeed:
    """What one request needs of each of its cards."""

    ask: DeviceRequirements
    selectors: tuple[str, ...]
    """Those that a card's kind decides."""
    is_exact: bool
    """Whether that is all of them, and nothing else is asked of the cards."""
    count: int = field(init=False)
    """How many cards are wanted."""
    suits: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Per kind, whether it matches and its taints are tolerated."""
    amounts: dict[int, Amounts] = field(default_factory=dict)
    """Per column of ``NodeTable.free`` and kind: what is taken, in billionths."""
    suits_all: bool = False
    suits_at: Sequence[int] = ()
    """``suits``, for one kind."""
    checks: tuple[Check, ...] = ()
    """``amounts`` in short."""

    def __post_init__(self) -> None:
        self.count = self.ask.request.count

    def learn(self, table: NodeTable, selectors: SelectorCache) -> None:
        """Judge the kinds that came since."""
        seen, now = len(self.suits), table.card_kinds.count
        self.suits = np.append(self.suits, np.zeros(now - seen, np.bool_))
        for column, amounts in self.amounts.items():
            self.amounts[column] = np.append(amounts, np.full(now - seen, _NOTHING_NEEDED))
        for kind in range(seen, now):
            self._judge(table, kind, table.card_kinds.example(kind), selectors)
        self.suits_all, self.suits_at = bool(self.suits.all()), self.suits.tolist()
        self.checks = tuple(self._check(*one) for one in self.amounts.items())

    def _check(self, column: int, amounts: Amounts) -> Check:
        taken = amounts[self.suits]
        is_one = bool((taken == taken[0]).all())
        return Check(column, None, float(taken[0])) if is_one else Check(column, amounts, 0.0)

    def _judge(self, table: NodeTable, kind: int, card: Card, selectors: SelectorCache) -> None:
        if card.fault or self.ask.untolerated(card) is not None:
            return
        consumed = self.ask.of(card)
        if consumed is None or not selectors.matches(self.selectors, card):
            return
        self.suits[kind] = True
        for key, amount in consumed.nano.items():
            if amount > 0:
                self._column(table.dimension(key))[kind] = min(amount, MOST_NANO)

    def _column(self, column: int) -> Amounts:
        known = self.amounts.get(column)
        if known is None:
            known = self.amounts[column] = np.full(len(self.suits), _NOTHING_NEEDED)
        return known

    def suiting(self, table: NodeTable, places: slice | Places) -> Flags:
        """Which of these cards have enough of everything. Not to be written to."""
        found = table.open[places]
        if not self.suits_all:
            found = found & self.suits[table.kind[places]] if self.suits.size else found & False
        for column, amounts, amount in self.checks:
            free = table.free[column][places]
            found = found & (free >= (amount if amounts is None else amounts[table.kind[places]]))
        return found

    def suiting_on(self, table: NodeTable, row: int, most: int) -> list[int]:
        """Cards of one node that have enough of everything, by their index on it, and no more than
        ``most``: what ``suiting`` says, without numpy, which takes longer for so few."""
        first, found = table.first_at[row], []
        open_at, kind_at, free_at = table.open_at, table.kind_at, table.free_at
        suits_all, suits_at, checks = self.suits_all, self.suits_at, self.checks
        for place in range(first, first + table.count_at[row]):
            if not open_at[place] or not (suits_all or (suits_at and suits_at[kind_at[place]])):
                continue
            for column, amounts, amount in checks:
                least = amount if amounts is None else amounts[kind_at[place]]
                if free_at[column][place] < least:
                    break
            else:
                found.append(place - first)
                if len(found) == most:
                    break
        return found


@dataclass(slots=True)
class FilterPlan:
    """What a pod needs of a node and of the node's cards."""

    needs: PodNeeds
    alone: bool
    cards: tuple[CardNeed, ...]
    cpu_milli: int
    memory_bytes: int
    known: tuple[int, int, int] = (-1, 0, 0)
    """What the tables are about: the table's numbering, and how many kinds there were of each."""
    may_run: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Per kind of node, whether the pod may run there as far as the kind tells."""
    may_run_at: Sequence[int] = ()
    """The same, for one kind."""
    tells_node: bool = False
    """Whether a node takes the pod, its cards aside, if, and only if, the node table says so."""
    is_simple: bool = False
    """Whether a node fits if, and only if, enough of its cards do, one by one."""
    is_single: bool = False
    """Whether it is simple, and one card is wanted."""
    _told: PodNeeds = field(default_factory=PodNeeds)
    """The needs that a node's kind tells."""

    @property
    def tells_needs(self) -> bool:
        """Whether ``may_run`` tells all that the pod needs but for amounts and ports."""
        needs, told = self.needs, self._told
        return (needs.node_selector, needs.node_terms) == (told.node_selector, told.node_terms)

    def learn(self, table: NodeTable, selectors: SelectorCache) -> bool:
        """Bring the tables up to date; whether what was derived from them before is void."""
        now = (table.numbering, table.card_kinds.count, table.node_kinds.count)
        if now == self.known:
            return False
        is_renumbered = now[0] != self.known[0]
        if is_renumbered:
            self._begin(table, selectors)
        for need in self.cards:
            need.learn(table, selectors)
        examples = map(table.node_kinds.example, range(len(self.may_run), now[2]))
        found = [fits(self._told, roomy(one), NOTHING, alone=self.alone) for one in examples]
        self.may_run = np.append(self.may_run, np.array(found, np.bool_))
        self.may_run_at = self.may_run.tolist()
        self.known = now
        return is_renumbered

    def _begin(self, table: NodeTable, selectors: SelectorCache) -> None:
        self.may_run = np.zeros(0, np.bool_)
        self._told = _told(self.needs, table)
        self.tells_node = _is_all(self._told, self.needs)
        self.cards = tuple(_need(need.ask, table, selectors) for need in self.cards)
        self.is_simple = len(self.cards) == 1 and self.cards[0].is_exact
        self.is_single = self.is_simple and self.cards[0].count == 1


def plan_of(
    table: NodeTable,
    selectors: SelectorCache,
    asks: Sequence[DeviceRequirements],
    needs: PodNeeds,
    *,
    alone: bool,
) -> FilterPlan:
    """A plan without tables yet; the node table learns to tell apart what they will depend on."""
    named = [selectors.reads(text) or () for ask in asks for text in ask.selectors]
    table.tell_cards_apart(equivalence_keys.attributes(read for reads in named for read in reads))
    table.tell_nodes_apart(equivalence_keys.labels(needs))
    return FilterPlan(
        needs,
        alone,
        tuple(CardNeed(ask, (), False) for ask in asks),
        min(needs.cpu_milli, _MOST),
        min(needs.memory_bytes, _MOST),
    )


def _need(ask: DeviceRequirements, table: NodeTable, selectors: SelectorCache) -> CardNeed:
    told = tuple(text for text in ask.selectors if _is_told(text, table, selectors))
    return CardNeed(ask, told, not ask.constraints and told == ask.selectors)


def _is_told(expression: str, table: NodeTable, selectors: SelectorCache) -> bool:
    reads = selectors.reads(expression)
    return reads is not None and all(
        map(table.card_kinds.tells, equivalence_keys.attributes(reads))
    )


def _told(needs: PodNeeds, table: NodeTable) -> PodNeeds:
    """Of the needs those that a node's kind tells: nothing that is used up, no name, and no label
    that makes no class. A need that is not named here is left to the exact look."""
    tells = table.node_kinds.tells
    wanted = {key: value for key, value in needs.node_selector.items() if tells(("label", key))}
    is_told = all(
        not one.is_field and tells(("label", one.key)) for term in needs.node_terms for one in term
    )
    terms = needs.node_terms if is_told else ()
    return PodNeeds(node_selector=wanted, node_terms=terms, tolerations=needs.tolerations)


def _is_all(told: PodNeeds, needs: PodNeeds) -> bool:
    """Whether nothing is needed but what a node's kind tells, and amounts that columns hold."""
    cpu_milli, memory_bytes = needs.cpu_milli, needs.memory_bytes
    all_told = replace(told, cpu_milli=cpu_milli, memory_bytes=memory_bytes, unread=needs.unread)
    return all_told == needs and max(cpu_milli, memory_bytes) < _MOST


def roomy(node: Node) -> Node:
    """The node with nothing used, so that only what doesn't change with use is judged."""
    return replace(node, pods=1, used_pods=0)
