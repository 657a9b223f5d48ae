"""What pods of one signature need, as arrays by kind of card and kind of node.

A selector that reads a property which does not distinguish kinds is ignored here: the index may
then contain nodes that do not fit, and the exact search excludes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from dray.api.pods import Node, PodNeeds
from dray_allocator.devices.capacity import Demand
from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.published_capacity import MOST_NANO
from dray_allocator.devices.published_devices import Card
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.devices.usage import NOTHING
from dray_allocator.nodes import equivalence_keys
from dray_allocator.nodes.columns import Amounts, Flags, Places
from dray_allocator.nodes.predicates import fits
from dray_allocator.nodes.table import NodeTable

_MOST: Final = 2**62
_NOTHING_NEEDED: Final = -np.inf


class Check(NamedTuple):
    """The amount that is needed in a column of ``NodeTable.free``."""

    column: int
    amounts: Amounts | None
    """By kind; None: ``amount`` for every matching kind."""
    amount: float
    least: float
    """The least of ``amounts``: a card with less left fits no kind."""


@dataclass(slots=True)
class CardNeed:
    """One request: which cards match it, and how much it needs of each."""

    ask: DeviceRequirements
    selectors: tuple[str, ...]
    """The selectors whose result is equal for all cards of a kind."""
    is_exact: bool
    """Whether these are all selectors, and there are no constraints."""
    count: int = field(init=False)
    """The number of requested cards."""
    matching: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    """By kind, whether it matches and its taints are tolerated."""
    amounts: dict[int, Amounts] = field(default_factory=dict)
    """By column of ``NodeTable.free`` and by kind, the amount that is needed, in billionths."""
    matches_all: bool = False
    matching_at: Sequence[int] = ()
    """``matching``, for single elements."""
    demands: list[Demand | None] = field(default_factory=list)
    """By kind, what it consumes; None: it does not match."""
    checks: tuple[Check, ...] = ()
    """``amounts``, in the form that ``fitting`` needs."""

    def __post_init__(self) -> None:
        self.count = self.ask.request.count

    def update(self, table: NodeTable, selectors: SelectorCache) -> None:
        """Evaluate the new kinds."""
        seen, now = len(self.matching), table.card_kinds.count
        self.matching = np.concatenate((self.matching, np.zeros(now - seen, np.bool_)))
        for column, amounts in self.amounts.items():
            self.amounts[column] = np.concatenate((amounts, np.full(now - seen, _NOTHING_NEEDED)))
        for kind in range(seen, now):
            self._evaluate(table, kind, table.card_kinds.example(kind), selectors)
        self.matches_all, self.matching_at = bool(self.matching.all()), self.matching.tolist()
        self.checks = tuple(self._check(*one) for one in self.amounts.items())

    def _check(self, column: int, amounts: Amounts) -> Check:
        taken = amounts[self.matching]
        first = taken.item(0)
        if len(taken) == 1 or (taken == first).all():
            return Check(column, None, first, first)
        return Check(column, amounts, 0.0, float(taken.min()))

    def _evaluate(self, table: NodeTable, kind: int, card: Card, selectors: SelectorCache) -> None:
        self.demands.append(None)
        if card.shape.fault or self.ask.untolerated(card) is not None:
            return
        consumed = self.ask.of(card)
        if consumed is None or not selectors.matches(self.selectors, card):
            return
        self.matching[kind] = True
        self.demands[kind] = consumed
        for key, amount in consumed.nano.items():
            if amount > 0:
                self._column(table.dimension(key))[kind] = min(amount, MOST_NANO)

    def _column(self, column: int) -> Amounts:
        known = self.amounts.get(column)
        if known is None:
            known = self.amounts[column] = np.full(len(self.matching), _NOTHING_NEEDED)
        return known

    def fitting(self, table: NodeTable, places: slice | Places) -> Flags:
        """Which of these cards fit. Read-only."""
        found = table.open[places]
        if not self.matches_all:
            found = (
                found & self.matching[table.kind[places]] if self.matching.size else found & False
            )
        for column, amounts, amount, _ in self.checks:
            free = table.free[column][places]
            found = found & (free >= (amount if amounts is None else amounts[table.kind[places]]))
        return found


@dataclass(slots=True)
class FilterPlan:
    """What pods of one signature need of a node and of its cards."""

    needs: PodNeeds
    alone: bool
    cards: tuple[CardNeed, ...]
    cpu_milli: int
    memory_bytes: int
    known: tuple[int, int, int] = (-1, 0, 0)
    """The state of the table at the last update: its numbering, and the numbers of kinds of cards
    and of nodes."""
    may_run: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    """By kind of node, whether the pod may run there, by the needs that depend on the kind."""
    may_run_at: Sequence[int] = ()
    """The same, for single elements."""
    decides_node: bool = False
    """Whether the table decides exactly if a node fits, apart from its cards."""
    is_simple: bool = False
    """Whether a node fits exactly if enough of its cards fit: one request, without constraints."""
    is_single: bool = False
    """Whether the plan is simple and requests one card."""
    _decided: PodNeeds = field(default_factory=PodNeeds)
    """The needs that depend only on the kind of the node."""

    @property
    def decides_needs(self) -> bool:
        """Whether ``may_run`` decides all needs of the pod, except amounts and ports."""
        needs, decided = self.needs, self._decided
        return (needs.node_selector, needs.node_terms) == (
            decided.node_selector,
            decided.node_terms,
        )

    def update(self, table: NodeTable, selectors: SelectorCache) -> bool:
        """Update the arrays; whether kinds were renumbered, so that derived values are invalid."""
        now = (table.numbering, table.card_kinds.count, table.node_kinds.count)
        if now == self.known:
            return False
        is_renumbered = now[0] != self.known[0]
        if is_renumbered:
            self._restart(table, selectors)
        for need in self.cards:
            need.update(table, selectors)
        examples = map(table.node_kinds.example, range(len(self.may_run), now[2]))
        found = [
            fits(self._decided, _with_free_slot(one), NOTHING, alone=self.alone) for one in examples
        ]
        self.may_run = np.concatenate((self.may_run, np.array(found, np.bool_)))
        self.may_run_at = self.may_run.tolist()
        self.known = now
        return is_renumbered

    def _restart(self, table: NodeTable, selectors: SelectorCache) -> None:
        self.may_run = np.zeros(0, np.bool_)
        self._decided = _decided(self.needs, table)
        self.decides_node = _are_all_decided(self._decided, self.needs)
        self.cards = tuple(_need(need.ask, table, selectors) for need in self.cards)
        self.is_simple = len(self.cards) == 1 and self.cards[0].is_exact
        self.is_single = self.is_simple and self.cards[0].count == 1


def filter_plan(
    table: NodeTable,
    selectors: SelectorCache,
    asks: Sequence[DeviceRequirements],
    needs: PodNeeds,
    *,
    alone: bool,
) -> FilterPlan:
    """A plan without arrays yet. Lets the kinds of the table distinguish what the pod reads."""
    named = [selectors.reads(text) or () for ask in asks for text in ask.selectors]
    table.distinguish_cards(equivalence_keys.attributes(read for reads in named for read in reads))
    table.distinguish_nodes(equivalence_keys.labels(needs))
    return FilterPlan(
        needs,
        alone,
        tuple(CardNeed(ask, (), False) for ask in asks),
        min(needs.cpu_milli, _MOST),
        min(needs.memory_bytes, _MOST),
    )


def _need(ask: DeviceRequirements, table: NodeTable, selectors: SelectorCache) -> CardNeed:
    decided = tuple(text for text in ask.selectors if _is_decided(text, table, selectors))
    return CardNeed(ask, decided, not ask.constraints and decided == ask.selectors)


def _is_decided(expression: str, table: NodeTable, selectors: SelectorCache) -> bool:
    reads = selectors.reads(expression)
    return reads is not None and all(
        map(table.card_kinds.distinguishes, equivalence_keys.attributes(reads))
    )


def _decided(needs: PodNeeds, table: NodeTable) -> PodNeeds:
    """The needs that depend only on the kind of a node: no resources, no node name, and no label
    that does not distinguish kinds. All other needs are checked on the best node only."""
    distinguishes = table.node_kinds.distinguishes
    wanted = {
        key: value for key, value in needs.node_selector.items() if distinguishes(("label", key))
    }
    is_decided = all(
        not one.is_field and distinguishes(("label", one.key))
        for term in needs.node_terms
        for one in term
    )
    terms = needs.node_terms if is_decided else ()
    return PodNeeds(node_selector=wanted, node_terms=terms, tolerations=needs.tolerations)


def _are_all_decided(decided: PodNeeds, needs: PodNeeds) -> bool:
    """Whether kinds and columns decide all needs."""
    cpu_milli, memory_bytes = needs.cpu_milli, needs.memory_bytes
    all_decided = replace(
        decided, cpu_milli=cpu_milli, memory_bytes=memory_bytes, unread=needs.unread
    )
    return all_decided == needs and max(cpu_milli, memory_bytes) < _MOST


def _with_free_slot(node: Node) -> Node:
    """The node with a free pod slot, so that only properties of its kind matter."""
    return replace(node, pods=1, used_pods=0)
