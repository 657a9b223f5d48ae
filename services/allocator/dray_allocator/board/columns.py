"""Columns that grow, and which stretch of them belongs to whom."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]
Places = NDArray[np.intp]
Amounts = NDArray[np.float64]


def grown(column: NDArray[Any], length: int, fill: object) -> NDArray[Any]:
    """A copy of ``column``, at least ``length`` long and half as long again as before."""
    room = max(length, len(column) + len(column) // 2)
    wider = np.full(room, fill, column.dtype)
    wider[: len(column)] = column
    return wider


class Stretches:
    """Stretches of the numbers from 0 on; those given back are used again for the same length."""

    def __init__(self) -> None:
        self.end = 0
        """All numbers in use are below it."""
        self._free: dict[int, list[int]] = {}

    def take(self, length: int) -> int:
        """The first number of a stretch of this length."""
        known = self._free.get(length)
        if known:
            return known.pop()
        first = self.end
        self.end += length
        return first

    def give_back(self, first: int, length: int) -> None:
        """A stretch is used no more."""
        if length:
            self._free.setdefault(length, []).append(first)


def spread(first: Whole, count: Whole) -> tuple[Places, Places]:
    """Every number of some stretches, and which stretch (by its place) each is of."""
    owner = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    within = np.arange(len(owner)) - before[owner]
    return first[owner] + within, owner
