"""The nodes of a board as the score sees them: free cpu, and of each card its class and what is
left. Equal ones have one number, and a node is read again only when it changed."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from dray.cel.reads import Read
from dray_allocator.board import reading
from dray_allocator.board.board import Board
from dray_allocator.board.columns import Whole, grown
from dray_allocator.placement.fragmentation.shapes import CARD, class_of
from dray_allocator.placement.fragmentation.table import STRIDE, State, code_of
from dray_allocator.placement.modes import FULL

Codes = tuple[int, ...]
"""Of a node's cards in their places; 0 where nothing is left or nothing was learned about it."""
Sight = tuple[int, Codes]
"""A node: free cpu in milli, and its cards."""
MOST_CPU_MILLI: Final = 10**8
"""More of a node's cpu counts as this much."""
_MOST_SIGHTS: Final = 200_000


class Nodes:
    """What is on one board, by the classes of cards that something was learned about."""

    def __init__(self, board: Board, classes: tuple[str, ...]) -> None:
        self.board = board
        self.classes = classes
        self._class_numbers = {name: number for number, name in enumerate(classes)}
        self._class_of_kind: list[int] = []
        self._kinds = (-1, 0)
        self._position = -1
        self.generation = 0
        """Moves whenever numbers mean something else than before."""
        self._number_of: dict[Sight, int] = {}
        self._sights: list[Sight] = []
        self.numbers: Whole = np.zeros(0, np.int64)
        """By row of the board."""

    def is_of(self, board: Board, classes: tuple[str, ...]) -> bool:
        """Whether they are of this board, and told apart by these classes."""
        return self.board is board and self.classes == classes

    def catch_up(self) -> None:
        """Look at the nodes that changed since this was called last."""
        board = self.board
        kinds = (board.numbering, board.card_kinds.count)
        if kinds != self._kinds:
            examples = map(board.card_kinds.example, range(kinds[1]))
            self._class_of_kind = [self._class_numbers.get(class_of(one), -1) for one in examples]
            if kinds[0] != self._kinds[0]:
                self._position = -1
            self._kinds = kinds
        if self._position == board.version:
            return
        if len(self._sights) > _MOST_SIGHTS + 4 * board.height:
            self._number_of, self._sights, self._position = {}, [], -1
            self.generation += 1
        if len(self.numbers) < board.height:
            self.numbers = grown(self.numbers, board.height, 0)
        if self._position < board.log_start:
            rows: Iterable[int] = range(board.height)
        else:
            rows = dict.fromkeys(board.log[self._position - board.log_start :])
        for row in rows:
            self.numbers[row] = self._read(row)
        self._position = board.version

    def class_number(self, kind: int) -> int:
        """The class of a kind of cards; below 0 where nothing was learned about it."""
        return self._class_of_kind[kind]

    def sight(self, number: int) -> Sight:
        """The nodes with a number."""
        return self._sights[number]

    def _read(self, row: int) -> int:
        board, classes = self.board, self._class_of_kind
        here = board.stretch(row)
        codes = tuple(
            [
                code_of(classes[kind], (FULL - load) * CARD // FULL)
                if is_open and load < FULL and classes[kind] >= 0
                else 0
                for kind, load, is_open in zip(
                    board.kind[here].tolist(),
                    board.load[here].tolist(),
                    board.open[here].tolist(),
                    strict=True,
                )
            ]
        )
        sight = max(0, min(board.cpu_milli.item(row), MOST_CPU_MILLI)), codes
        number = self._number_of.get(sight)
        if number is None:
            number = self._number_of[sight] = len(self._sights)
            self._sights.append(sight)
        return number


def tell_models_apart(board: Board) -> None:
    """See to it that cards of one kind are of one class. Kinds may have other numbers then."""
    examples = map(board.card_kinds.example, range(board.card_kinds.count))
    drivers = dict.fromkeys(card.id.driver for card in examples)
    board.tell_cards_apart(
        reading.attributes(Read("attributes", driver, "model") for driver in drivers)
    )


def state_of(cpu_milli: int, codes: Iterable[int]) -> State:
    """The state of a node with such cards, wherever they are."""
    return cpu_milli, tuple(sorted([code for code in codes if code % STRIDE]))
