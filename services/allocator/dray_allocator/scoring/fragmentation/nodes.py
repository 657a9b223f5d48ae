"""The state of nodes that the score reads: free cpu, and class and free share of each card.

A node is read again only after it changed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dray.cel.reads import Read
from dray_allocator.devices.published_devices import Card
from dray_allocator.devices.usage import FULL
from dray_allocator.nodes import equivalence_keys
from dray_allocator.nodes.columns import Places, Whole, expand_ranges, grown
from dray_allocator.nodes.equivalence import EquivalenceClasses
from dray_allocator.nodes.table import NodeTable
from dray_allocator.scoring.fragmentation.shapes import CARD, class_of
from dray_allocator.scoring.fragmentation.table import code_of

NodeKey = tuple[int, tuple[int, ...]]
"""The state of a node: its free cpu in milli, and the code of each card; 0: nothing free, or an
unknown class."""
KindsState = tuple[EquivalenceClasses[Card], int, int]
"""The kinds of cards of a table, the version of their numbering, and their number."""
_MOST_CPU_MILLI: Final = 10**8
"""Limit of a node's cpu."""
_MOST_NUMBERS: Final = 200_000


@dataclass(frozen=True, slots=True)
class DeviceColumns:
    """The cards of several nodes, node by node."""

    places: Places
    codes: Whole
    owner: Places
    """By card, the position of its node."""
    first: Places
    """By node, the position of its first card."""


class PoolNodes:
    """The nodes of one table, by the classes of cards in the workload model."""

    def __init__(self, table: NodeTable, classes: tuple[str, ...]) -> None:
        self.table = table
        self.classes = classes
        self._class_numbers = {name: number for number, name in enumerate(classes)}
        self._class_of_kind: list[int] = []
        self._kinds = (-1, 0)
        self._position = -1
        self.codes: Whole = np.zeros(0, np.int64)
        """By place of the table, the code of the card; 0: nothing free, an unknown class, or no
        card."""
        self.numbers: Whole = np.zeros(0, np.int64)
        """By row of the table, the number of its key: equal for nodes with equal keys."""
        self.generation = 0
        """Increases when keys are numbered again."""
        self._number_of: dict[NodeKey, int] = {}
        self._keys: list[NodeKey] = []

    def is_of(self, table: NodeTable, classes: tuple[str, ...]) -> bool:
        """Whether these are the nodes of this table, with these classes."""
        return self.table is table and self.classes == classes

    def catch_up(self) -> None:
        """Read the nodes that changed since the last call."""
        table = self.table
        kinds = (table.numbering, table.card_kinds.count)
        if kinds != self._kinds:
            examples = map(table.card_kinds.example, range(kinds[1]))
            self._class_of_kind = [self._class_numbers.get(class_of(one), -1) for one in examples]
            if kinds[0] != self._kinds[0]:
                self._position = -1
            self._kinds = kinds
        if self._position == table.version:
            return
        self._fit_length()
        if len(self._number_of) > _MOST_NUMBERS + 4 * table.height:
            self._number_of, self._keys, self._position = {}, [], -1
            self.generation += 1
        changed = table.changed_since(self._position)
        if changed is None:
            rows: Iterable[int] = range(table.height)
            self.codes[: table.places] = self._read_all()
        else:
            rows = dict.fromkeys(changed.tolist())
            for row in rows:
                self._read(row)
        for row in rows:
            self.numbers[row] = self._number(row)
        self._position = table.version

    def class_number(self, kind: int) -> int:
        """The class of a kind of cards; below 0: unknown."""
        return self._class_of_kind[kind]

    def key_of(self, row: int) -> NodeKey:
        """The key of a node."""
        return self._keys[self.numbers.item(row)]

    def cpu_milli(self, rows: Whole) -> Whole:
        """The free cpu of nodes."""
        return np.minimum(np.maximum(self.table.cpu_milli[rows], 0), _MOST_CPU_MILLI)

    def cards(self, rows: Whole) -> DeviceColumns:
        """The cards of nodes. Every node must have a card."""
        count = self.table.count[rows]
        places, owner = expand_ranges(self.table.first[rows], count)
        return DeviceColumns(places, self.codes[places], owner, np.add.accumulate(count) - count)

    def _number(self, row: int) -> int:
        table = self.table
        free = max(0, min(table.cpu_milli.item(row), _MOST_CPU_MILLI))
        key = free, tuple(self.codes[table.card_slice(row)].tolist())
        number = self._number_of.get(key)
        if number is None:
            number = self._number_of[key] = len(self._keys)
            self._keys.append(key)
        return number

    def _read(self, row: int) -> None:
        """Read the codes of one node's cards, without numpy."""
        table, classes = self.table, self._class_of_kind
        here = table.card_slice(row)
        self.codes[here] = [
            code_of(classes[kind], (FULL - load) * CARD // FULL)
            if is_open and load < FULL and classes[kind] >= 0
            else 0
            for kind, load, is_open in zip(
                table.kind[here].tolist(),
                table.load[here].tolist(),
                table.open[here].tolist(),
                strict=True,
            )
        ]

    def _read_all(self) -> Whole:
        """The codes of all places."""
        table, there = self.table, slice(0, self.table.places)
        classes = np.array([*self._class_of_kind, -1])[table.kind[there]]  # never empty
        load = table.load[there]
        has_some = table.open[there] & (load < FULL) & (classes >= 0)
        codes: Whole = np.where(has_some, code_of(classes, (FULL - load) * CARD // FULL), 0)
        return codes

    def _fit_length(self) -> None:
        if len(self.numbers) < self.table.height:
            self.numbers = grown(self.numbers, self.table.height, -1)
        if len(self.codes) < self.table.places:
            self.codes = grown(self.codes, self.table.places, 0)


def kinds_state(table: NodeTable) -> KindsState:
    """Equal until kinds of cards are added or renumbered; different for different tables."""
    return table.card_kinds, table.numbering, table.card_kinds.count


def distinguish_models(table: NodeTable) -> None:
    """Let kinds of cards distinguish models, and thereby classes. Kinds may be renumbered."""
    examples = map(table.card_kinds.example, range(table.card_kinds.count))
    drivers = dict.fromkeys(card.id.driver for card in examples)
    table.distinguish_cards(
        equivalence_keys.attributes(Read("attributes", driver, "model") for driver in drivers)
    )
