"""What typical pods can use of nodes in given states, as columns of numbers.

All numbers are whole and small enough for a float to hold them and their sums exactly, so that
every machine finds the same, in whatever order its library adds.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dray.messages.decisions import TypicalPod
from dray_allocator.board.columns import Amounts, Whole
from dray_allocator.placement.fragmentation.shapes import CARD

State = tuple[int, tuple[int, ...]]
"""A node's free cpu in milli, and a code for each card of which something is left, in order."""
STRIDE: Final = CARD + 1
_FEWEST: Final = 256


def code_of(card_class: int, left: int) -> int:
    """The code of a card with ``left`` thousandths free."""
    return card_class * STRIDE + left


def uses_cards(pod: TypicalPod) -> bool:
    """Whether the pod asks for cards, of classes that there are."""
    return pod.cards > 0 and any(pod.milli)


class Table:
    """Typical pods that ask for cards, by columns. Pods without cards use none of any node."""

    def __init__(self, classes: int, pods: Sequence[TypicalPod]) -> None:
        pods = [pod for pod in pods if uses_cards(pod)]
        self._cpu: Amounts = np.array([max(pod.cpu_milli, 1) for pod in pods], np.float64)
        self._cards: Amounts = np.array([pod.cards for pod in pods], np.float64)
        columns: dict[tuple[bool, tuple[int, ...]], int] = {}
        numbers = [columns.setdefault((one.cards > 1, one.milli), len(columns)) for one in pods]
        self._column: Whole = np.array(numbers, np.int64)
        self._several = np.array([several for several, _ in columns], np.bool_)
        milli = np.array([amounts for _, amounts in columns], np.int64).reshape(-1, classes)
        self._milli = np.where(milli > 0, milli, CARD + 1).T.astype(np.float64)
        """Per class and column."""
        width = len(columns)
        self._rows: dict[int, int] = {}
        self._left: Amounts = np.zeros(_FEWEST, np.float64)
        self._copies: Amounts = np.zeros((_FEWEST, width), np.float64)
        self._held: Amounts = np.zeros((_FEWEST, width), np.float64)
        self._unfit: Amounts = np.zeros((_FEWEST, width), np.float64)

    def features(self, states: Sequence[State]) -> tuple[Amounts, Amounts]:
        """Per state and pod: milli of cards that copies of the pod can have, by cards and cpu, and
        idle milli that one copy can't use."""
        cards = self._rows_of(states)
        cpu = np.array([[state[0]] for state in states], np.float64)
        whole = np.add.reduce(self._copies[cards], axis=1)[:, self._column]
        held = np.add.reduce(self._held[cards], axis=1)[:, self._column]
        copies = whole
        if self._several.any():
            copies = whole // self._cards
            held = np.floor(held * (copies * self._cards) / np.maximum(whole, 1))
        needed = copies * self._cpu
        by_cpu = np.floor(held * cpu / np.maximum(needed, 1))
        usable = np.where(needed <= cpu, held, by_cpu)
        idle = np.add.reduce(self._left[cards], axis=1)[:, None]
        unfit = np.add.reduce(self._unfit[cards], axis=1)[:, self._column]
        runs = (copies >= 1) & (cpu >= self._cpu)
        return usable, np.where(runs, unfit, idle)

    def _rows_of(self, states: Sequence[State]) -> Whole:
        """Per state, the rows of its cards in the columns by code; row 0 is no card."""
        width = max(1, max(len(cards) for _, cards in states))
        rows, known = np.zeros((len(states), width), np.int64), self._rows
        for at, (_, cards) in enumerate(states):
            for number, code in enumerate(cards):
                row = known.get(code)
                rows[at, number] = self._add(code) if row is None else row
        return rows

    def _add(self, code: int) -> int:
        row = self._rows[code] = len(self._rows) + 1
        if row >= len(self._left):
            self._left = _doubled(self._left)
            self._copies, self._held = _doubled(self._copies), _doubled(self._held)
            self._unfit = _doubled(self._unfit)
        card_class, left = divmod(code, STRIDE)
        milli = self._milli[card_class]
        copies = left // milli
        copies = np.where(self._several, np.minimum(copies, 1), copies)
        self._left[row] = left
        self._copies[row] = copies
        self._held[row] = np.where(copies > 0, copies * milli, 0)
        self._unfit[row] = np.where(copies > 0, 0, left)
        return row


def _doubled(column: Amounts) -> Amounts:
    return np.concatenate((column, np.zeros_like(column)))
