"""The columns of a node table: one row per node, one place per card.

The cards of a node have consecutive places.
"""

from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np

from dray.api.pods import Node
from dray_allocator.devices.node_devices import Card
from dray_allocator.nodes.columns import (
    Amounts,
    Flags,
    IndexRanges,
    Places,
    flags,
    grown,
    longer,
    wholes,
)

_FIRST: Final = 64
_NO_NODE: Final = Node("", "", "")


class NodeColumns:
    """The columns. Any change may replace them by longer ones: do not keep references.

    Names with ``_at`` are for single elements, the others for NumPy; both have the same memory.
    """

    def __init__(self) -> None:
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

    def _make_columns(self) -> None:
        # By row.
        self.first_at, self.first = wholes(_FIRST)
        self.count_at, self.count = wholes(_FIRST)
        self.load_sum_at, self.load_sum = wholes(_FIRST)
        """The sum of the loads of the node's cards, in millionths."""
        self.tie_at, self.tie = wholes(_FIRST)
        self.linked_at, _ = wholes(_FIRST)
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
        # By place.
        self.row: Places = np.zeros(_FIRST, np.intp)
        self.kind_at, self.kind = wholes(_FIRST)
        self.open_at, self.open = flags(_FIRST)
        """Whether the card may be allocated, apart from amounts (``source.is_open``)."""
        self.has_card: Flags = np.zeros(_FIRST, np.bool_)
        """Whether the place has a card."""
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
        self.tie_at, self.tie = longer(self.tie_at, length)
        self.linked_at, _ = longer(self.linked_at, length)
        self.present_at, self.present = longer(self.present_at, length)
        self.node_kind_at, self.node_kind = longer(self.node_kind_at, length)
        self.cpu_milli_at, self.cpu_milli = longer(self.cpu_milli_at, length)
        self.memory_bytes_at, self.memory_bytes = longer(self.memory_bytes_at, length)
        self.pods_at, self.pods = longer(self.pods_at, length)
        self.all_cpu_milli_at, self.all_cpu_milli = longer(self.all_cpu_milli_at, length)
        self.all_memory_bytes_at, self.all_memory_bytes = longer(self.all_memory_bytes_at, length)

    def _grow_places(self, length: int) -> None:
        self.row, self.has_card = grown(self.row, length, 0), grown(self.has_card, length, False)
        self.kind_at, self.kind = longer(self.kind_at, length)
        self.open_at, self.open = longer(self.open_at, length)
        self.load_at, self.load = longer(self.load_at, length)
        self.card_tie_at, self.card_tie = longer(self.card_tie_at, length)
        both = [longer(free, length) for free in self.free_at]
        self.free_at, self.free = [each for each, _ in both], [free for _, free in both]
