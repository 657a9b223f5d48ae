"""The nodes and cards of one pool as columns, and a log of the nodes that changed.

A node has a row, its cards a stretch of places. Whoever derives something from the columns
keeps a position in the log and, when it is asked again, looks at the rows logged since.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

import numpy as np

from dray.domain.pods import Node
from dray_allocator.board import reading
from dray_allocator.board.columns import Amounts, Flags, Places, Stretches, Whole, grown, spread
from dray_allocator.board.kinds import Kinds
from dray_allocator.board.source import Source, bounded, is_open
from dray_allocator.board.ties import Ties
from dray_allocator.fit.devices import Card
from dray_allocator.node.holds import Held
from dray_allocator.placement.modes import card_load, tie
from dray_allocator.placement.topology import is_linked

_FIRST: Final = 64


class Board:
    """One pool. Columns may be replaced by longer ones with any change: don't keep them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        """By row; empty where the row is free."""
        self._free_rows: list[int] = []
        self._stretches = Stretches()
        self.cards = 0
        """How many cards there are."""
        self.linked = 0
        """How many of them NVLink joins to another one."""
        self.card_kinds = Kinds(reading.of_card)
        self.node_kinds = Kinds(reading.of_node)
        self.numbering = 0
        """Moves whenever kinds have other numbers than before."""
        self.kinds_seen = 0
        """Moves whenever there may be other kinds than before."""
        self.dimensions: dict[str, int] = {}
        """Column of ``free`` per capacity that somebody needs."""
        self.log: list[int] = []
        self.log_start = 0
        """How many entries the log has lost at its beginning."""
        self.ties = Ties()
        self._make_columns()

    def _make_columns(self) -> None:
        # By row.
        self.first: Whole = np.zeros(_FIRST, np.int64)
        self.count: Whole = np.zeros(_FIRST, np.int64)
        self.load_sum: Whole = np.zeros(_FIRST, np.int64)
        """Of the node's cards, in millionths."""
        self.tie: Whole = np.zeros(_FIRST, np.int64)
        self.row_linked: Whole = np.zeros(_FIRST, np.int64)
        self.present: Flags = np.zeros(_FIRST, np.bool_)
        """Whether there is a node in the row."""
        self.node_kind: Places = np.zeros(_FIRST, np.intp)
        self.cpu_milli: Whole = np.zeros(_FIRST, np.int64)
        """Free ones, as the next two."""
        self.memory_bytes: Whole = np.zeros(_FIRST, np.int64)
        self.pods: Whole = np.zeros(_FIRST, np.int64)
        self.all_cpu_milli: Whole = np.zeros(_FIRST, np.int64)
        """What there is in all, as the next one."""
        self.all_memory_bytes: Whole = np.zeros(_FIRST, np.int64)
        # By place.
        self.row: Places = np.zeros(_FIRST, np.intp)
        self.kind: Places = np.zeros(_FIRST, np.intp)
        self.open: Flags = np.zeros(_FIRST, np.bool_)
        """Whether the card isn't taken whole, nor is to be shared by nobody and in use."""
        self.there: Flags = np.zeros(_FIRST, np.bool_)
        """Whether there is a card in the place."""
        self.load: Whole = np.zeros(_FIRST, np.int64)
        self.card_tie: Whole = np.zeros(_FIRST, np.int64)
        self.free: list[Amounts] = []
        """Per capacity, what is left of it in billionths, rounded to a float. Rounding keeps
        the order, so that an amount that fits is never taken for one that does not."""

    @property
    def version(self) -> int:
        """The position behind the log's last entry."""
        return self.log_start + len(self.log)

    @property
    def height(self) -> int:
        """Rows in use are below it."""
        return len(self.names)

    @property
    def places(self) -> int:
        """Places in use are below it."""
        return self._stretches.end

    def put(self, name: str, *, cards: bool = True) -> None:
        """Read a node that may be new; without ``cards``, not its cards where it is known."""
        node, held = self._source.node(name), self._source.held(name)
        if cards or name not in self.rows:
            row = self._row_of(name)
            self._place(row, self._source.cards(name))
        row = self.rows[name]
        self.tie[row] = value = tie(node.uid or node.name)
        self.ties.set(row, value)
        self.node_kind[row] = self.node_kinds.of(node)
        self._set_resources(row, node, held)
        self.kinds_seen += 1
        self._note(row)

    def hold_changed(self, name: str) -> None:
        """More or less is held on a node, if it is there."""
        row = self.rows.get(name)
        if row is not None:
            self._set_resources(row, self._source.node(name), self._source.held(name))
            self._note(row)

    def drop(self, name: str) -> None:
        """Forget a node, if it is there."""
        row = self.rows.pop(name, None)
        if row is None:
            return
        self._leave(row)
        self.ties.forget(row)
        self.names[row] = ""
        self.present[row] = False
        self.node_kind[row] = 0
        self._free_rows.append(row)
        self._note(row)

    def use_changed(self, card: Card) -> None:
        """More or less of a card is used."""
        row = self.rows.get(card.node)
        if row is None:
            return
        place = self.first.item(row) + card.index
        use = self._source.use(card.id)
        load, before = card_load(card, use), self.load.item(place)
        if load != before:
            self.load[place] = load
            self.load_sum[row] += load - before
        self.open[place] = is_open(card, use)
        used, totals = use.used, card.totals
        for key, column in self.dimensions.items():
            if key in totals:
                self.free[column][place] = totals[key] - used.get(key, 0)
        self._note(row)

    def tell_cards_apart(self, questions: Mapping[Hashable, Callable[[Card], Hashable]]) -> None:
        """See to it that cards of one kind agree in what is asked, as far as that is possible."""
        if not all(map(self.card_kinds.knows, questions)):
            self._number_cards(questions)

    def tell_nodes_apart(self, questions: Mapping[Hashable, Callable[[Node], Hashable]]) -> None:
        """The same of nodes."""
        if not all(map(self.node_kinds.knows, questions)):
            self._number_nodes(questions)

    def renumber_if_outgrown(self) -> None:
        """Forget kinds of which there is nothing left, once they are many."""
        if self.card_kinds.outgrown:
            self._number_cards({})
        if self.node_kinds.outgrown:
            self._number_nodes({})

    def _number_cards(self, questions: Mapping[Hashable, Callable[[Card], Hashable]]) -> None:
        cards = [card for name in self.rows for card in self._source.cards(name)]
        rows = list(self.rows.values())
        self.kind[:] = 0
        places, _ = spread(self.first[rows], self.count[rows])
        self.kind[places] = self.card_kinds.ask(questions, cards)
        self.numbering += 1
        self.kinds_seen += 1

    def _number_nodes(self, questions: Mapping[Hashable, Callable[[Node], Hashable]]) -> None:
        nodes = [self._source.node(name) for name in self.rows]
        self.node_kind[list(self.rows.values())] = self.node_kinds.ask(questions, nodes)
        self.numbering += 1
        self.kinds_seen += 1

    def dimension(self, key: str) -> int:
        """The column of what is left of a capacity; it is kept from the first time it is needed."""
        known = self.dimensions.get(key)
        if known is None:
            known = self.dimensions[key] = len(self.free)
            self.free.append(np.zeros(len(self.row), np.float64))
            for name, row in self.rows.items():
                for place, card in enumerate(self._source.cards(name), self.first.item(row)):
                    if key in card.totals:
                        used = self._source.use(card.id).used.get(key, 0)
                        self.free[known][place] = card.totals[key] - used
        return known

    def stretch(self, row: int) -> slice:
        """The places of a node's cards, in the order of ``NodeDevices.cards``."""
        first = self.first.item(row)
        return slice(first, first + self.count.item(row))

    def uid(self, row: int) -> str:
        """The uid of the node in a row."""
        return self._source.node(self.names[row]).uid

    def _note(self, row: int) -> None:
        self.log.append(row)
        if len(self.log) > 4 * self.height + 4096:
            lost = len(self.log) // 2
            del self.log[:lost]
            self.log_start += lost

    def _set_resources(self, row: int, node: Node, held: Held) -> None:
        self.cpu_milli[row] = bounded(node.cpu_milli - node.used_cpu_milli - held.cpu_milli)
        free_bytes = node.memory_bytes - node.used_memory_bytes - held.memory_bytes
        self.memory_bytes[row] = bounded(free_bytes)
        self.pods[row] = bounded(node.pods - node.used_pods - held.pods)
        self.all_cpu_milli[row] = bounded(node.cpu_milli)
        self.all_memory_bytes[row] = bounded(node.memory_bytes)

    def _row_of(self, name: str) -> int:
        row = self.rows.get(name)
        if row is not None:
            return row
        if self._free_rows:
            row = self._free_rows.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            if row >= len(self.first):
                self._grow_rows(row + 1)
        self.rows[name] = row
        self.present[row] = True
        return row

    def _grow_rows(self, length: int) -> None:
        self.first, self.count = grown(self.first, length, 0), grown(self.count, length, 0)
        self.load_sum, self.tie = grown(self.load_sum, length, 0), grown(self.tie, length, 0)
        self.node_kind = grown(self.node_kind, length, 0)
        self.row_linked = grown(self.row_linked, length, 0)
        self.present = grown(self.present, length, False)
        self.cpu_milli = grown(self.cpu_milli, length, 0)
        self.memory_bytes = grown(self.memory_bytes, length, 0)
        self.pods = grown(self.pods, length, 0)
        self.all_cpu_milli = grown(self.all_cpu_milli, length, 0)
        self.all_memory_bytes = grown(self.all_memory_bytes, length, 0)

    def _grow_places(self, length: int) -> None:
        self.row, self.kind = grown(self.row, length, 0), grown(self.kind, length, 0)
        self.open, self.there = grown(self.open, length, False), grown(self.there, length, False)
        self.load, self.card_tie = grown(self.load, length, 0), grown(self.card_tie, length, 0)
        self.free = [grown(column, length, 0.0) for column in self.free]

    def _place(self, row: int, cards: Sequence[Card]) -> None:
        """Give the row a stretch for its cards and fill it."""
        if self.count.item(row) != len(cards):
            self._leave(row)
            self.first[row] = self._stretches.take(len(cards))
            self.count[row] = len(cards)
            self.cards += len(cards)
            if self.places > len(self.row):
                self._grow_places(self.places)
        linked = sum(is_linked(card) for card in cards)
        self.linked += linked - self.row_linked.item(row)
        self.row_linked[row] = linked
        here = self.stretch(row)
        uses = [self._source.use(card.id) for card in cards]
        loads = [card_load(card, use) for card, use in zip(cards, uses, strict=True)]
        self.row[here] = row
        self.there[here] = True
        self.kind[here] = [self.card_kinds.of(card) for card in cards]
        self.open[here] = [is_open(card, use) for card, use in zip(cards, uses, strict=True)]
        self.load[here] = loads
        self.load_sum[row] = sum(loads)
        self.card_tie[here] = [tie(str(card.id)) for card in cards]
        for key, column in self.dimensions.items():
            self.free[column][here] = [
                card.totals.get(key, 0) - use.used.get(key, 0)
                for card, use in zip(cards, uses, strict=True)
            ]

    def _leave(self, row: int) -> None:
        here, count = self.stretch(row), self.count.item(row)
        self.open[here] = self.there[here] = False
        self.kind[here] = 0
        self._stretches.give_back(here.start, count)
        self.cards -= count
        self.linked -= self.row_linked.item(row)
        self.count[row] = self.row_linked[row] = 0
        self.load_sum[row] = 0
