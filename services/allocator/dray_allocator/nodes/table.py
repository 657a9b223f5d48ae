"""The nodes and cards of one pool as columns, and a log of the nodes that changed.

A node has a row, and each of its cards a place (an index of the card columns). An index keeps its
position in the log and, on its next use, evaluates the rows that were logged since.
"""

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

import numpy as np

from dray.api.devices import DeviceId
from dray.api.pods import Node
from dray_allocator.devices.links import has_link_attributes, is_linked
from dray_allocator.devices.published_devices import Card
from dray_allocator.devices.usage import (
    MOST_LOAD,
    NOTHING,
    UNUSED,
    AssumedResources,
    DeviceUse,
    load_of,
)
from dray_allocator.nodes import equivalence_keys
from dray_allocator.nodes.columns import (
    Amounts,
    Flags,
    IndexRanges,
    Places,
    Whole,
    amounts,
    expand_ranges,
    flags,
    grown,
    longer,
    wholes,
)
from dray_allocator.nodes.equivalence import EquivalenceClasses
from dray_allocator.nodes.tie_break import TieRows, tie

_FIRST: Final = 64
_NO_NODE: Final = Node("", "", "")
_MOST: Final = 2**62
"""The limit of amounts of cpu and memory."""


@dataclass(frozen=True, slots=True)
class Source:
    """The current values."""

    node: Callable[[str], Node]
    assumed: Mapping[str, AssumedResources]
    """By node; none for a node without assumed pods."""
    cards: Callable[[str], Sequence[Card]]
    uses: Mapping[DeviceId, DeviceUse]
    """By device; none for a device that is not in use."""


class NodeTable:
    """The table of one pool.

    Any change may replace columns by longer ones: do not keep references. Names with ``_at`` are
    for single elements, the others for NumPy; both have the same memory.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        """By row; empty if the row is free."""
        self.nodes_in: list[Node] = []
        """By row."""
        self.cards_in: list[Sequence[Card]] = []
        """By row; their places start at ``first``."""
        self._free_rows: list[int] = []
        self._card_ranges = IndexRanges()
        self._make_columns()
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
        self._log_at, self._log = wholes(4096)
        self.version = 0
        """The position after the last entry of the log."""
        self._logged = 0
        """How many entries of the log are in use."""
        self._log_start = 0
        """The number of entries that were removed from the start of the log."""
        self.ties = TieRows()

    @property
    def height(self) -> int:
        """All rows in use are below it."""
        return len(self.names)

    @property
    def places(self) -> int:
        """All places in use are below it."""
        return self._card_ranges.end

    def card_slice(self, row: int) -> slice:
        """The places of a node's cards, in the order of ``NodeDevices.cards``."""
        first = self.first_at[row]
        return slice(first, first + self.count_at[row])

    def cards_by_load(
        self, row: int, cards: Sequence[int], *, fills: bool, loads: Sequence[int] = ()
    ) -> list[int]:
        """Sort cards of a node by load, the lowest or the highest (``fills``) first, then by tie
        break. ``cards``, by their index on the node, are in ascending order; ``loads``: of all
        cards of the node, if other ones than the table's count."""
        here = self.card_slice(row)
        found = sorted(cards, key=self.card_tie_at[here].__getitem__)
        # Both sorts are stable.
        found.sort(key=(loads or self.load_at[here]).__getitem__, reverse=fills)
        return found

    def changed_since(self, position: int) -> Whole | None:
        """The rows that changed since a position of the log, in order; a row that changed twice is
        there twice. None: the log does not reach back so far. Do not keep the result."""
        start = position - self._log_start
        return self._log[start : self._logged] if start >= 0 else None

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
        self.all_cpu_milli_at[row] = _bounded(node.cpu_milli)
        self.all_memory_bytes_at[row] = _bounded(node.memory_bytes)
        self.nodes_in[row] = node
        self._set_free(row, self._source.assumed.get(name, NOTHING))
        self.kinds_version += 1
        self._log_change(row)

    def use_changed(self, name: str, cards: Sequence[Card] = ()) -> None:
        """Update the assumed resources of a node, and the use of these cards."""
        row = self.rows.get(name)
        if row is not None:
            self._set_free(row, self._source.assumed.get(name, NOTHING))
            if len(cards) == 1:
                self._set_use(row, cards[0])
            elif cards and len(cards) == self.count_at[row] and self._are_uses_equal(row):
                self._set_equal_uses(row)
            elif cards:
                self._set_uses(row, cards)
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
            for each, together, length in (
                (self.free_at, self.free, len(self.row)),
                (self.most_free_at, self.most_free, len(self.first)),
            ):
                both = amounts(length)
                each.append(both[0])
                together.append(both[1])
            free = self.free_at[known]
            for name, row in self.rows.items():
                for place, card in enumerate(self._source.cards(name), self.first_at[row]):
                    if key in card.shape.totals:
                        used = self._source.uses.get(card.id, UNUSED).used.get(key, 0)
                        free[place] = card.shape.totals[key] - used
                self._set_most_free(row, (known,))
        return known

    def uid(self, row: int) -> str:
        """The uid of the node in a row."""
        return self.nodes_in[row].uid

    def _log_change(self, row: int) -> None:
        if self._logged == len(self._log):
            if self._logged <= 4 * len(self.names):
                self._log_at, self._log = longer(self._log_at, self._logged + 1)
            else:
                lost = self._logged // 2
                self._log[: self._logged - lost] = self._log[lost : self._logged].copy()
                self._log_start += lost
                self._logged -= lost
        self._log_at[self._logged] = row
        self._logged += 1
        self.version += 1

    def _set_free(self, row: int, assumed: AssumedResources) -> None:
        node = self.nodes_in[row]
        cpu_milli = node.cpu_milli - node.used_cpu_milli - assumed.cpu_milli
        memory_bytes = node.memory_bytes - node.used_memory_bytes - assumed.memory_bytes
        self.cpu_milli_at[row] = _bounded(cpu_milli)
        self.memory_bytes_at[row] = _bounded(memory_bytes)
        self.pods_at[row] = _bounded(node.pods - node.used_pods - assumed.pods)

    def _set_use(self, row: int, card: Card) -> None:
        place = self.first_at[row] + card.index
        use = self._source.uses.get(card.id, UNUSED)
        load, former = load_of(card.shape.totals, use), self.load_at[place]
        if load != former:
            self.load_at[place] = load
            self._set_load(row, self.load_sum_at[row] + load - former)
        was_open, self.open_at[place] = self.open_at[place], (opens := _is_open(card, use))
        used, totals, free_at = use.used, card.shape.totals, self.free_at
        for key, column in self.dimensions.items():
            total = totals.get(key)
            if total is not None:
                before = free_at[column][place] if was_open else -1.0
                free_at[column][place] = free = float(total - used.get(key, 0))
                most = self.most_free_at[column][row]
                if opens and free >= most:
                    self.most_free_at[column][row] = free
                elif before >= most:
                    self._set_most_free(row, (column,))

    def _set_uses(self, row: int, cards: Sequence[Card]) -> None:
        """The same for several cards of a node, which often have equal uses."""
        first, load_sum, uses = self.first_at[row], self.load_sum_at[row], self._source.uses
        load_at, open_at, free_at = self.load_at, self.open_at, self.free_at
        shape, use, load, free = None, UNUSED, 0, list[tuple["array[float]", float]]()
        for card in cards:
            place, former, use = first + card.index, use, uses.get(card.id, UNUSED)
            if card.shape is not shape or use != former:
                shape, used = card.shape, use.used
                load = load_of(shape.totals, use)
                free = [
                    (free_at[column], float(shape.totals[key] - used.get(key, 0)))
                    for key, column in self.dimensions.items()
                    if key in shape.totals
                ]
            load_sum += load - load_at[place]
            load_at[place] = load
            open_at[place] = _is_open(card, use)
            for column_at, amount in free:
                column_at[place] = amount
        self._set_load(row, load_sum)
        self._set_most_free(row, self.dimensions.values())

    def _are_uses_equal(self, row: int) -> bool:
        """Whether all cards of a node have the same shape and equal uses."""
        cards, uses = self.cards_in[row], self._source.uses
        shape, use = cards[0].shape, uses.get(cards[0].id, UNUSED)
        return all(card.shape is shape and uses.get(card.id, UNUSED) == use for card in cards)

    def _set_equal_uses(self, row: int) -> None:
        """The same for all cards of a node, if ``_are_uses_equal``."""
        here, card = self.card_slice(row), self.cards_in[row][0]
        use, totals = self._source.uses.get(card.id, UNUSED), card.shape.totals
        load, opens = load_of(totals, use), _is_open(card, use)
        self.load[here], self.open[here] = load, opens
        self._set_load(row, load * self.count_at[row])
        for key, column in self.dimensions.items():
            if key in totals:
                self.free[column][here] = free = float(totals[key] - use.used.get(key, 0))
                self.most_free_at[column][row] = free if opens else -1.0
            else:
                self._set_most_free(row, (column,))

    def _set_load(self, row: int, total: int) -> None:
        self.load_sum_at[row] = total
        self.mean_load_at[row] = min(total // (self.count_at[row] or 1), MOST_LOAD)

    def _set_most_free(self, row: int, columns: Iterable[int]) -> None:
        here = self.card_slice(row)
        are_open = self.open_at[here]
        for column in columns:
            open_amounts = compress(self.free_at[column][here], are_open)
            self.most_free_at[column][row] = max(open_amounts, default=-1.0)

    def _set_cards(self, row: int, cards: Sequence[Card]) -> None:
        """Allocate places for the cards of a node, and fill their columns."""
        if self.count_at[row] != len(cards):
            self._release_cards(row)
            self.first_at[row] = self._card_ranges.take(len(cards))
            self.count_at[row] = len(cards)
            self.cards += len(cards)
            if self.places > len(self.row):
                self._grow_places(self.places)
        self.has_links_at[row] = has_links = has_link_attributes(cards)
        linked = sum(map(is_linked, cards)) if has_links else 0
        self.linked += linked - self.linked_at[row]
        self.linked_at[row] = linked
        self.cards_in[row] = cards
        here = self.card_slice(row)
        uses = [self._source.uses.get(card.id, UNUSED) for card in cards]
        loads = [load_of(card.shape.totals, use) for card, use in zip(cards, uses, strict=True)]
        self.row[here] = row
        self.has_card[here] = True
        self.kind[here] = [self.card_kinds.of(card) for card in cards]
        self.open[here] = [_is_open(card, use) for card, use in zip(cards, uses, strict=True)]
        self.load[here] = loads
        self._set_load(row, sum(loads))
        self.card_tie[here] = [tie(str(card.id)) for card in cards]
        for key, column in self.dimensions.items():
            self.free[column][here] = [
                card.shape.totals.get(key, 0) - use.used.get(key, 0)
                for card, use in zip(cards, uses, strict=True)
            ]
        self._set_most_free(row, self.dimensions.values())

    def _release_cards(self, row: int) -> None:
        here, count = self.card_slice(row), self.count_at[row]
        self.open[here] = self.has_card[here] = False
        self.kind[here] = 0
        self._card_ranges.release(here.start, count)
        self.cards -= count
        self.linked -= self.linked_at[row]
        self.count_at[row] = self.linked_at[row] = self.has_links_at[row] = 0
        self._set_load(row, 0)
        self.cards_in[row] = ()

    def _make_columns(self) -> None:
        # By row.
        self.first_at, self.first = wholes(_FIRST)
        self.count_at, self.count = wholes(_FIRST)
        self.load_sum_at, self.load_sum = wholes(_FIRST)
        """The sum of the loads of the node's cards, in millionths."""
        self.mean_load_at, self.mean_load = wholes(_FIRST)
        """At most ``MOST_LOAD``."""
        self.tie_at, self.tie = wholes(_FIRST)
        self.linked_at, _ = wholes(_FIRST)
        self.has_links_at, _ = flags(_FIRST)
        """Whether one of the node's cards publishes a link attribute."""
        self.present_at, self.present = flags(_FIRST)
        """Whether the row has a node."""
        self.node_kind_at, self.node_kind = wholes(_FIRST)
        self.cpu_milli_at, self.cpu_milli = wholes(_FIRST)
        """Free, as in the next two columns."""
        self.memory_bytes_at, self.memory_bytes = wholes(_FIRST)
        self.pods_at, self.pods = wholes(_FIRST)
        self.all_cpu_milli_at, self.all_cpu_milli = wholes(_FIRST)
        """Allocatable, as in the next column."""
        self.all_memory_bytes_at, self.all_memory_bytes = wholes(_FIRST)
        self.most_free_at: list[array[float]] = []
        self.most_free: list[Amounts] = []
        """By capacity as in ``free``, how much is left on the best of the node's open cards."""
        # By place.
        self.row: Places = np.zeros(_FIRST, np.intp)
        self.kind_at, self.kind = wholes(_FIRST)
        self.open_at, self.open = flags(_FIRST)
        """Whether the card may be allocated, apart from amounts (``source.is_open``)."""
        self.has_card: Flags = np.zeros(_FIRST, np.bool_)
        """Whether the place is in use: freed places are reused."""
        self.load_at, self.load = wholes(_FIRST)
        self.card_tie_at, self.card_tie = wholes(_FIRST)
        self.free_at: list[array[float]] = []
        self.free: list[Amounts] = []
        """By capacity, how much is left, in billionths, rounded to a float. Rounding is monotonic:
        an amount that fits still fits after rounding."""

    def _take_row(self, name: str) -> int:
        row = self.rows.get(name)
        if row is not None:
            return row
        if self._free_rows:
            row = self._free_rows.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            self.nodes_in.append(_NO_NODE)
            self.cards_in.append(())
            if row >= len(self.first):
                self._grow_rows(row + 1)
        self.rows[name] = row
        self.present_at[row] = True
        return row

    def _release_row(self, row: int) -> None:
        del self.rows[self.names[row]]
        self.names[row] = ""
        self.nodes_in[row] = _NO_NODE
        self.present_at[row] = False
        self.node_kind_at[row] = 0
        self._free_rows.append(row)

    def _grow_rows(self, length: int) -> None:
        self.first_at, self.first = longer(self.first_at, length)
        self.count_at, self.count = longer(self.count_at, length)
        self.load_sum_at, self.load_sum = longer(self.load_sum_at, length)
        self.mean_load_at, self.mean_load = longer(self.mean_load_at, length)
        self.tie_at, self.tie = longer(self.tie_at, length)
        self.linked_at, _ = longer(self.linked_at, length)
        self.has_links_at, _ = longer(self.has_links_at, length)
        self.present_at, self.present = longer(self.present_at, length)
        self.node_kind_at, self.node_kind = longer(self.node_kind_at, length)
        self.cpu_milli_at, self.cpu_milli = longer(self.cpu_milli_at, length)
        self.memory_bytes_at, self.memory_bytes = longer(self.memory_bytes_at, length)
        self.pods_at, self.pods = longer(self.pods_at, length)
        self.all_cpu_milli_at, self.all_cpu_milli = longer(self.all_cpu_milli_at, length)
        self.all_memory_bytes_at, self.all_memory_bytes = longer(self.all_memory_bytes_at, length)
        both = [longer(free, length) for free in self.most_free_at]
        self.most_free_at, self.most_free = [each for each, _ in both], [free for _, free in both]

    def _grow_places(self, length: int) -> None:
        self.row, self.has_card = grown(self.row, length, 0), grown(self.has_card, length, False)
        self.kind_at, self.kind = longer(self.kind_at, length)
        self.open_at, self.open = longer(self.open_at, length)
        self.load_at, self.load = longer(self.load_at, length)
        self.card_tie_at, self.card_tie = longer(self.card_tie_at, length)
        both = [longer(free, length) for free in self.free_at]
        self.free_at, self.free = [each for each, _ in both], [free for _, free in both]


def _is_open(card: Card, use: DeviceUse) -> bool:
    """Whether the card may be allocated, apart from amounts (``device_requests.has_room``)."""
    return not use.shares or (card.device.allow_multiple_allocations and not use.whole)


def _bounded(amount: int) -> int:
    """Limit an amount to what a column can hold."""
    return amount if -_MOST < amount < _MOST else max(-_MOST, min(amount, _MOST))
