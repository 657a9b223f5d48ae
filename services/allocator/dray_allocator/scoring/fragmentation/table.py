"""The capacity of nodes that typical pods can use, as columns.

All numbers are whole, and small enough for exact float sums in any order: results are equal on all
machines.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np

from dray.messages.decisions import TypicalPod
from dray_allocator.nodes.columns import Amounts, Places, Whole
from dray_allocator.scoring.fragmentation.shapes import CARD

STRIDE: Final = CARD + 1
_MOST_CPU_MILLI: Final = 2**40
"""Limit of a pod's cpu: more than any node has, and its multiples fit 64 bits."""
_FEWEST: Final = 256

Number = TypeVar("Number", int, Whole)


def code_of(card_class: Number, left: Number) -> Number:
    """The code of a card with ``left`` thousandths free; multiples of ``STRIDE``: nothing free."""
    return card_class * STRIDE + left


def uses_cards(pod: TypicalPod) -> bool:
    """Whether the pod requests cards of known classes."""
    return pod.cards > 0 and any(pod.milli)


class NodeStateTable:
    """Typical pods that request cards. Pods that differ only in cpu and weights share a column."""

    def __init__(self, classes: int, pods: Sequence[TypicalPod]) -> None:
        self._idle = sum(pod.waste for pod in pods)
        """Cost of an idle thousandth that no pod can use."""
        pods = [pod for pod in pods if uses_cards(pod)]
        columns: dict[tuple[int, tuple[int, ...]], int] = {}
        numbers = [columns.setdefault((one.cards, one.milli), len(columns)) for one in pods]
        self.codes = classes * STRIDE
        """Upper bound of the codes."""
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
        """Per column, the largest cpu of its pods."""
        np.maximum.at(self._most_cpu, self._column, self._cpu)
        self._gain: Amounts = np.array([pod.gain for pod in pods], np.float64)
        self._gains: Amounts = np.bincount(self._column, self._gain, width).astype(np.float64)
        """Per column, the sum over its pods."""
        self._wholes: Places = (self._cards > 1).nonzero()[0]
        """The columns of pods with several cards."""
        self._cpus, self._waste = self._waste_by_cpu([pod.waste for pod in pods])
        self.several = [
            (int(self._cards[at]), int(self._gains[at]), int(self._waste[-1, at]))
            for at in self._wholes.tolist()
        ]
        """Per column of pods with several cards: the number of cards, the worth of a usable
        thousandth, and the cost of an unusable one."""
        self._row: Whole = np.full(self.codes, -1, np.int64)
        self._row[::STRIDE] = 0
        self._used = 1
        self._rows: Amounts = np.zeros((_FEWEST, 3 * width + 1), np.float64)

    def _waste_by_cpu(self, waste: Sequence[int]) -> tuple[Amounts, Amounts]:
        """The distinct amounts of cpu, sorted, and by rank and column, the cost of an idle
        thousandth for pods that need at most that cpu; rank 0: less than the first amount."""
        cpus, rank = np.unique(self._cpu, return_inverse=True)
        found = np.zeros((len(cpus) + 1, self.width), np.float64)
        np.add.at(found, (rank + 1, self._column), np.array(waste, np.float64))
        return cpus, np.add.accumulate(found, axis=0)

    def of(self, codes: Whole) -> Amounts:
        """By card and column: copies of the pods that fit, thousandths that they hold, and idle
        thousandths if one fits; the last column: idle thousandths in any case."""
        rows = self._row[codes]
        if rows.min(initial=0) < 0:
            self._add(np.unique(codes[rows < 0]))
            rows = self._row[codes]
        return self._rows[rows]

    def sums(self, codes: Whole, first: Whole) -> Amounts:
        """The same by node: sums over its cards. ``first``: the position of each node's first
        card."""
        found: Amounts = np.add.reduceat(self.of(codes), first)
        return found

    def worth(self, sums: Amounts, cpu_milli: Whole) -> Whole:
        """The worth of nodes with these sums and free cpu, in millionths of a thousandth of a card:
        the gain of usable thousandths, minus the cost of unusable ones."""
        copies, held, fit = self._by_column(sums)
        waste = self._waste[self._cpus.searchsorted(cpu_milli, "right")]
        costs = (waste * fit).sum(axis=1) - sums[:, -1] * self._idle
        found = self._usable(copies, held, cpu_milli) @ self._gain
        worth: Whole = (found + costs).astype(np.int64)
        return worth

    def by_card(self, codes: Whole) -> tuple[Whole, Whole]:
        """The worth of cards for pods with one card if cpu is ample, and how much cpu is ample."""
        copies, held, fit, left = self._parts(self.of(codes))
        gains, waste = self._gains.copy(), self._waste[-1].copy()
        gains[self._wholes] = waste[self._wholes] = 0
        worth = held @ gains + fit @ waste - left * self._idle
        cpu_milli = np.ceil(copies * self._most_cpu / self._cards).max(axis=1, initial=0)
        return worth.astype(np.int64), cpu_milli.astype(np.int64)

    def parts_of(self, code: int) -> list[tuple[int, int, int]]:
        """By entry of ``several``: whether a card is usable, and its held and idle thousandths."""
        copies, held, fit, _ = self._parts(self.of(np.array((code,), np.int64)))
        columns = [one[0, self._wholes].astype(int).tolist() for one in (copies, held, fit)]
        return list(zip(*columns, strict=True))

    def usable(self, sums: Amounts, cpu_milli: Whole) -> Amounts:
        """By pod that requests cards, the thousandths that its copies could use on all nodes."""
        copies, held, _ = self._by_column(sums)
        found: Amounts = self._usable(copies, held, cpu_milli).sum(axis=0)
        return found

    def _parts(self, sums: Amounts) -> tuple[Amounts, Amounts, Amounts, Amounts]:
        """Split sums into copies, held, idle if one fits, and idle thousandths."""
        width = self.width
        copies, held = sums[:, :width], sums[:, width : 2 * width]
        return copies, held, sums[:, 2 * width : -1], sums[:, -1]

    def _by_column(self, sums: Amounts) -> tuple[Amounts, Amounts, Amounts]:
        """Copies, held thousandths, and idle thousandths on cards that one copy fits."""
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
        return np.minimum(held, by_cpu, out=by_cpu)  # Less than ``held`` if cpu is scarce.

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
