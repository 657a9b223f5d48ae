"""What typical pods can use of nodes in given states, as columns of numbers.

All numbers are whole and small enough for a float to hold them and their sums exactly, so that
every machine finds the same, in whatever order its library adds.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np

from dray.messages.decisions import TypicalPod
from dray_allocator.nodes.columns import Amounts, Places, Whole
from dray_allocator.scoring.fragmentation.shapes import CARD

STRIDE: Final = CARD + 1
_MOST_CPU_MILLI: Final = 2**40
"""A request may be for any amount: more than any node has is as good as that, and fits 64 bits."""
_FEWEST: Final = 256

Number = TypeVar("Number", int, Whole)


def code_of(card_class: Number, left: Number) -> Number:
    """The code of a card with ``left`` thousandths free. Multiples of ``STRIDE`` say that nothing
    is left, whatever the class."""
    return card_class * STRIDE + left


def uses_cards(pod: TypicalPod) -> bool:
    """Whether the pod asks for cards, of classes that there are."""
    return pod.cards > 0 and any(pod.milli)


class NodeStateTable:
    """Typical pods that ask for cards. Those that ask for as many cards and for as much of each
    class share a column: they differ only in cpu, and in what they count for."""

    def __init__(self, classes: int, pods: Sequence[TypicalPod]) -> None:
        self._idle = sum(pod.waste for pod in pods)
        """What an idle milli costs that no pod can use."""
        pods = [pod for pod in pods if uses_cards(pod)]
        columns: dict[tuple[int, tuple[int, ...]], int] = {}
        numbers = [columns.setdefault((one.cards, one.milli), len(columns)) for one in pods]
        self.codes = classes * STRIDE
        """All codes of cards are below it."""
        self.width = width = len(columns)
        self.pods = len(pods)
        self._column: Whole = np.array(numbers, np.int64)
        self._cards: Amounts = np.array([cards for cards, _ in columns], np.float64)
        milli = np.array([amounts for _, amounts in columns], np.int64).reshape(-1, classes)
        self._milli: Whole = np.where(milli > 0, milli, CARD + 1).T
        """Per class and column."""
        cpu = [min(max(pod.cpu_milli, 1), _MOST_CPU_MILLI) for pod in pods]
        self._cpu: Amounts = np.array(cpu, np.float64)
        self._most_cpu: Amounts = np.zeros(width, np.float64)
        """Per column, what its pod with the most needs."""
        np.maximum.at(self._most_cpu, self._column, self._cpu)
        self._gain: Amounts = np.array([pod.gain for pod in pods], np.float64)
        self._gains: Amounts = np.bincount(self._column, self._gain, width).astype(np.float64)
        """Of all pods of a column."""
        self._wholes: Places = (self._cards > 1).nonzero()[0]
        """The columns of pods with several cards."""
        self._cpus, self._waste = self._waste_by_cpu([pod.waste for pod in pods])
        self.several = [
            (int(self._cards[at]), int(self._gains[at]), int(self._waste[-1, at]))
            for at in self._wholes.tolist()
        ]
        """Per column of pods with several cards: how many cards, what a milli that such pods can
        use is worth, and what one costs that they can't."""
        self._row: Whole = np.full(self.codes, -1, np.int64)
        self._row[::STRIDE] = 0
        self._used = 1
        self._rows: Amounts = np.zeros((_FEWEST, 3 * width + 1), np.float64)

    def _waste_by_cpu(self, waste: Sequence[int]) -> tuple[Amounts, Amounts]:
        """Amounts of cpu, and per rank among them and column, what an idle milli costs for all pods
        that need no more cpu than that; rank 0 is for less than the first."""
        cpus, rank = np.unique(self._cpu, return_inverse=True)
        found = np.zeros((len(cpus) + 1, self.width), np.float64)
        np.add.at(found, (rank + 1, self._column), np.array(waste, np.float64))
        return cpus, np.add.accumulate(found, axis=0)

    def of(self, codes: Whole) -> Amounts:
        """Per card and column: copies of such pods that it can hold, thousandths that they hold,
        and those left if it can hold one; and last, those left in any case."""
        rows = self._row[codes]
        if rows.min(initial=0) < 0:
            self._add(np.unique(codes[rows < 0]))
            rows = self._row[codes]
        return self._rows[rows]

    def parts(self, sums: Amounts) -> tuple[Amounts, Amounts, Amounts, Amounts]:
        """The copies, what they hold, what is left where there are any; and what is left in all."""
        width = self.width
        copies, held = sums[:, :width], sums[:, width : 2 * width]
        return copies, held, sums[:, 2 * width : -1], sums[:, -1]

    def sums(self, codes: Whole, first: Whole) -> Amounts:
        """The same of nodes: their cards' taken together. ``first``: where each one's begin."""
        found: Amounts = np.add.reduceat(self.of(codes), first)
        return found

    def worth(self, sums: Amounts, cpu_milli: Whole) -> Whole:
        """What nodes with such sums and free cpu are worth, in millionths of a thousandth of a
        card: a gain for each milli that a copy of a pod could use, a cost for each that is idle and
        that it couldn't."""
        copies, held, fit = self._by_column(sums)
        waste = self._waste[self._cpus.searchsorted(cpu_milli, "right")]
        costs = (waste * fit).sum(axis=1) - sums[:, -1] * self._idle
        found = self._usable(copies, held, cpu_milli) @ self._gain
        worth: Whole = (found + costs).astype(np.int64)
        return worth

    def by_card(self, codes: Whole) -> tuple[Whole, Whole]:
        """What cards are worth to pods with one card if there is enough cpu, less what is left of
        them costs; and how much is enough for all pods."""
        copies, held, fit, left = self._parts(self.of(codes))
        gains, waste = self._gains.copy(), self._waste[-1].copy()
        gains[self._wholes] = waste[self._wholes] = 0
        worth = held @ gains + fit @ waste - left * self._idle
        cpu_milli = np.ceil(copies * self._most_cpu / self._cards).max(axis=1, initial=0)
        return worth.astype(np.int64), cpu_milli.astype(np.int64)

    def parts_of(self, code: int) -> list[tuple[int, int, int]]:
        """Per entry of ``several``: whether a card is one of those, what it holds then, and what is
        left of it then."""
        copies, held, fit, _ = self._parts(self.of(np.array((code,), np.int64)))
        columns = [one[0, self._wholes].astype(int).tolist() for one in (copies, held, fit)]
        return list(zip(*columns, strict=True))

    def usable(self, sums: Amounts, cpu_milli: Whole) -> Amounts:
        """Per pod that asks for cards, what its copies could use of all these nodes: thousandths of
        cards, by cards and cpu."""
        copies, held, _ = self._by_column(sums)
        found: Amounts = self._usable(copies, held, cpu_milli).sum(axis=0)
        return found

    def _parts(self, sums: Amounts) -> tuple[Amounts, Amounts, Amounts, Amounts]:
        width = self.width
        copies, held = sums[:, :width], sums[:, width : 2 * width]
        return copies, held, sums[:, 2 * width : -1], sums[:, -1]

    def _by_column(self, sums: Amounts) -> tuple[Amounts, Amounts, Amounts]:
        """Copies of pods, what they hold, and what is left of cards that can hold one."""
        copies, held, fit, _ = self._parts(sums)
        if self._wholes.size:
            whole, copies = copies, copies // self._cards
            held = np.floor(held * (copies * self._cards) / np.maximum(whole, 1))
            fit = np.where(copies >= 1, fit, 0)
        return copies, held, fit

    def _usable(self, copies: Amounts, held: Amounts, cpu_milli: Whole) -> Amounts:
        if self.width < len(self._column):
            copies, held = copies.take(self._column, axis=1), held.take(self._column, axis=1)
        needed = np.maximum(copies * self._cpu, 1)
        by_cpu: Amounts = held * cpu_milli[:, None]
        by_cpu /= needed
        np.floor(by_cpu, out=by_cpu)
        return np.minimum(held, by_cpu, out=by_cpu)  # less than is held where cpu is short

    def _add(self, codes: Whole) -> None:
        first, self._used = self._used, self._used + len(codes)
        while self._used > len(self._rows):
            self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)))
        self._row[codes] = np.arange(first, self._used)
        left = (codes % STRIDE)[:, None]
        milli = self._milli[codes // STRIDE]
        copies = left // milli
        copies = np.where(self._cards > 1, np.minimum(copies, 1), copies)
        fit = np.where(copies > 0, left, 0)
        self._rows[first : self._used] = np.hstack((copies, copies * milli, fit, left))
