"""The nodes and cards of one pool as columns, and a log of the nodes that changed.

A node has a row, and each of its cards a place (an index of the card columns). An index keeps its
position in the log and, on its next use, evaluates the rows that were logged since.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence

from dray.api.pods import Node
from dray_allocator.devices.links import is_linked
from dray_allocator.devices.node_devices import Card
from dray_allocator.nodes import equivalence_keys
from dray_allocator.nodes.assumed_pods import AssumedResources
from dray_allocator.nodes.columns import amounts, expand_ranges
from dray_allocator.nodes.equivalence import EquivalenceClasses
from dray_allocator.nodes.load import load_of, tie
from dray_allocator.nodes.source import Source, bounded, is_open
from dray_allocator.nodes.table_columns import NodeColumns
from dray_allocator.nodes.tie_break import TieRows


class NodeTable(NodeColumns):
    """The table of one pool."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self.cards = 0
        """The number of cards."""
        self.linked = 0
        """The number of cards with NVLink."""
        self.card_kinds = EquivalenceClasses(equivalence_keys.of_card)
        self.node_kinds = EquivalenceClasses(equivalence_keys.of_node)
        self.numbering = 0
        """Increases when kinds are renumbered."""
        self.kinds_version = 0
        """Increases when there may be new kinds."""
        self.dimensions: dict[str, int] = {}
        """By capacity that a plan needs, its column in ``free``."""
        self.log: list[int] = []
        self.log_start = 0
        """The number of entries that were removed from the start of the log."""
        self.ties = TieRows()

    @property
    def version(self) -> int:
        """The position after the last entry of the log."""
        return self.log_start + len(self.log)

    def put(self, name: str, *, cards: bool = True) -> None:
        """Add or update a node; without ``cards``, the cards of a known node are not read."""
        node = self._source.node(name)
        if cards or name not in self.rows:
            row = self._take_row(name)
            self._set_cards(row, self._source.cards(name))
        row = self.rows[name]
        self.tie_at[row] = value = tie(node.uid or node.name)
        self.ties.set(row, value)
        self.node_kind_at[row] = self.node_kinds.of(node)
        self.all_cpu_milli_at[row] = bounded(node.cpu_milli)
        self.all_memory_bytes_at[row] = bounded(node.memory_bytes)
        self.nodes_in[row] = node
        self._set_free(row, self._source.held(name))
        self.kinds_version += 1
        self._log_change(row)

    def use_changed(self, name: str, cards: Sequence[Card] = ()) -> None:
        """Update the assumed resources of a node, and the use of these cards."""
        row = self.rows.get(name)
        if row is not None:
            self._set_free(row, self._source.held(name))
            for card in cards:
                self._set_use(row, card)
            self._log_change(row)

    def drop(self, name: str) -> None:
        """Remove a node, if it is in the table."""
        row = self.rows.get(name)
        if row is None:
            return
        self._release_cards(row)
        self.ties.forget(row)
        self._release_row(row)
        self._log_change(row)

    def distinguish_cards(self, properties: Mapping[Hashable, Callable[[Card], Hashable]]) -> None:
        """Let kinds of cards distinguish these properties, except those with too many values."""
        if not all(map(self.card_kinds.has_property, properties)):
            self._number_cards(properties)

    def distinguish_nodes(self, properties: Mapping[Hashable, Callable[[Node], Hashable]]) -> None:
        """The same for nodes."""
        if not all(map(self.node_kinds.has_property, properties)):
            self._number_nodes(properties)

    def renumber_if_needed(self) -> None:
        """Remove unused kinds, if there are many."""
        if self.card_kinds.needs_renumbering:
            self._number_cards({})
        if self.node_kinds.needs_renumbering:
            self._number_nodes({})

    def _number_cards(self, properties: Mapping[Hashable, Callable[[Card], Hashable]]) -> None:
        cards = [card for name in self.rows for card in self._source.cards(name)]
        rows = list(self.rows.values())
        self.kind[:] = 0
        places, _ = expand_ranges(self.first[rows], self.count[rows])
        self.kind[places] = self.card_kinds.renumber(properties, cards)
        self.numbering += 1
        self.kinds_version += 1

    def _number_nodes(self, properties: Mapping[Hashable, Callable[[Node], Hashable]]) -> None:
        nodes = [self._source.node(name) for name in self.rows]
        self.node_kind[list(self.rows.values())] = self.node_kinds.renumber(properties, nodes)
        self.numbering += 1
        self.kinds_version += 1

    def dimension(self, key: str) -> int:
        """The column in ``free`` of a capacity; added on first use."""
        known = self.dimensions.get(key)
        if known is None:
            known = self.dimensions[key] = len(self.free)
            free, all_free = amounts(len(self.row))
            self.free_at.append(free)
            self.free.append(all_free)
            for name, row in self.rows.items():
                for place, card in enumerate(self._source.cards(name), self.first_at[row]):
                    if key in card.totals:
                        used = self._source.use(card.id).used.get(key, 0)
                        free[place] = card.totals[key] - used
        return known

    def uid(self, row: int) -> str:
        """The uid of the node in a row."""
        return self.nodes_in[row].uid

    def _log_change(self, row: int) -> None:
        self.log.append(row)
        if len(self.log) > 4 * len(self.names) + 4096:
            lost = len(self.log) // 2
            del self.log[:lost]
            self.log_start += lost

    def _set_free(self, row: int, held: AssumedResources) -> None:
        node = self.nodes_in[row]
        cpu_milli = node.cpu_milli - node.used_cpu_milli - held.cpu_milli
        memory_bytes = node.memory_bytes - node.used_memory_bytes - held.memory_bytes
        self.cpu_milli_at[row] = bounded(cpu_milli)
        self.memory_bytes_at[row] = bounded(memory_bytes)
        self.pods_at[row] = bounded(node.pods - node.used_pods - held.pods)

    def _set_use(self, row: int, card: Card) -> None:
        place = self.first_at[row] + card.index
        use = self._source.use(card.id)
        load, before = load_of(card.totals, use), self.load_at[place]
        if load != before:
            self.load_at[place] = load
            self.load_sum_at[row] += load - before
        self.open_at[place] = is_open(card, use)
        used, totals, free_at = use.used, card.totals, self.free_at
        for key, column in self.dimensions.items():
            total = totals.get(key)
            if total is not None:
                free_at[column][place] = total - used.get(key, 0)

    def _set_cards(self, row: int, cards: Sequence[Card]) -> None:
        """Allocate places for the cards of a node, and fill their columns."""
        if self.count_at[row] != len(cards):
            self._release_cards(row)
            self.first_at[row] = self._card_ranges.take(len(cards))
            self.count_at[row] = len(cards)
            self.cards += len(cards)
            if self.places > len(self.row):
                self._grow_places(self.places)
        linked = sum(is_linked(card) for card in cards)
        self.linked += linked - self.linked_at[row]
        self.linked_at[row] = linked
        self.cards_in[row] = cards
        here = self.card_slice(row)
        uses = [self._source.use(card.id) for card in cards]
        loads = [load_of(card.totals, use) for card, use in zip(cards, uses, strict=True)]
        self.row[here] = row
        self.has_card[here] = True
        self.kind[here] = [self.card_kinds.of(card) for card in cards]
        self.open[here] = [is_open(card, use) for card, use in zip(cards, uses, strict=True)]
        self.load[here] = loads
        self.load_sum_at[row] = sum(loads)
        self.card_tie[here] = [tie(str(card.id)) for card in cards]
        for key, column in self.dimensions.items():
            self.free[column][here] = [
                card.totals.get(key, 0) - use.used.get(key, 0)
                for card, use in zip(cards, uses, strict=True)
            ]

    def _release_cards(self, row: int) -> None:
        here, count = self.card_slice(row), self.count_at[row]
        self.open[here] = self.has_card[here] = False
        self.kind[here] = 0
        self._card_ranges.release(here.start, count)
        self.cards -= count
        self.linked -= self.linked_at[row]
        self.count_at[row] = self.linked_at[row] = self.load_sum_at[row] = 0
        self.cards_in[row] = ()
