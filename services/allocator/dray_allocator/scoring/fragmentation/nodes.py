"""The nodes of a table as the score sees them: free cpu, and of each card its class and what is
left. A node is read again only when it changed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dray.cel.reads import Read
from dray_allocator.devices.published_device import Card
from dray_allocator.nodes import equivalence_keys
from dray_allocator.nodes.columns import Places, Whole, grown, spread
from dray_allocator.nodes.equivalence import EquivalenceClasses
from dray_allocator.nodes.load import FULL
from dray_allocator.nodes.table import NodeTable
from dray_allocator.scoring.fragmentation.shapes import CARD, class_of
from dray_allocator.scoring.fragmentation.table import code_of

Sight = tuple[int, tuple[int, ...]]
"""A node: free cpu in milli, and the code of each card; 0 where nothing is left, or where nothing
was learned about it."""
KindsSeen = tuple[EquivalenceClasses[Card], int, int]
"""Of a node table, with the number of their numbering, and how many there were."""
MOST_CPU_MILLI: Final = 10**8
"""More of a node's cpu counts as this much."""
_MOST_NUMBERS: Final = 200_000


@dataclass(frozen=True, slots=True)
class DeviceColumns:
    """The cards of some nodes that have any, node by node."""

    places: Places
    codes: Whole
    owner: Places
    """Of which of the nodes, by its number among them."""
    first: Places
    """Where each node's begin."""


class Nodes:
    """What is on one node table, by the classes of cards that something was learned about."""

    def __init__(self, table: NodeTable, classes: tuple[str, ...]) -> None:
        self.table = table
        self.classes = classes
        self._class_numbers = {name: number for number, name in enumerate(classes)}
        self._class_of_kind: list[int] = []
        self._kinds = (-1, 0)
        self._position = -1
        self.codes: Whole = np.zeros(0, np.int64)
        """By place of the node table, of its card; 0 where nothing is left of it, where nothing was
        learned about its class, and where there is none."""
        self.numbers: Whole = np.zeros(0, np.int64)
        """By row of the node table: equal for nodes that look alike, card by card."""
        self.generation = 0
        """Moves whenever numbers mean something else than before."""
        self._number_of: dict[Sight, int] = {}
        self._sights: list[Sight] = []

    def is_of(self, table: NodeTable, classes: tuple[str, ...]) -> bool:
        """Whether they are of this table, and in these classes."""
        return self.table is table and self.classes == classes

    def catch_up(self) -> None:
        """Look at the nodes that changed since this was called last."""
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
            self._number_of, self._sights, self._position = {}, [], -1
            self.generation += 1
        if self._position < table.log_start:
            rows: Iterable[int] = range(table.height)
            self.codes[: table.places] = self._read_all()
        else:
            rows = dict.fromkeys(table.log[self._position - table.log_start :])
            for row in rows:
                self._read(row)
        for row in rows:
            self.numbers[row] = self._number(row)
        self._position = table.version

    def class_number(self, kind: int) -> int:
        """The class of a kind of cards; below 0 where nothing was learned about it."""
        return self._class_of_kind[kind]

    def sight(self, row: int) -> Sight:
        """A node."""
        return self._sights[self.numbers.item(row)]

    def cpu_milli(self, rows: Whole) -> Whole:
        """What is free on nodes."""
        return np.minimum(np.maximum(self.table.cpu_milli[rows], 0), MOST_CPU_MILLI)

    def cards(self, rows: Whole) -> DeviceColumns:
        """The cards of nodes, each of which has some."""
        count = self.table.count[rows]
        places, owner = spread(self.table.first[rows], count)
        return DeviceColumns(places, self.codes[places], owner, np.add.accumulate(count) - count)

    def _number(self, row: int) -> int:
        table = self.table
        free = max(0, min(table.cpu_milli.item(row), MOST_CPU_MILLI))
        sight = free, tuple(self.codes[table.stretch(row)].tolist())
        number = self._number_of.get(sight)
        if number is None:
            number = self._number_of[sight] = len(self._sights)
            self._sights.append(sight)
        return number

    def _read(self, row: int) -> None:
        """The codes of one node's cards; for so few, without columns."""
        table, classes = self.table, self._class_of_kind
        here = table.stretch(row)
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
        """The codes in all places."""
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


def kinds_of(table: NodeTable) -> KindsSeen:
    """Equal while the numbers of kinds of cards stand for the same ones; those of another table
    never do, even where there are as many."""
    return table.card_kinds, table.numbering, table.card_kinds.count


def tell_models_apart(table: NodeTable) -> None:
    """See to it that cards of one kind are of one class. Kinds may have other numbers then."""
    examples = map(table.card_kinds.example, range(table.card_kinds.count))
    drivers = dict.fromkeys(card.id.driver for card in examples)
    table.tell_cards_apart(
        equivalence_keys.attributes(Read("attributes", driver, "model") for driver in drivers)
    )
