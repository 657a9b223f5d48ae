"""Columns that grow, and which stretch of them belongs to whom.

A column is seen two ways, over one memory: as numpy for all of it, and as an array for single
numbers, which costs a third of the time there.
"""

from array import array
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

N = TypeVar("N", int, float)
Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]
Places = NDArray[np.intp]
Amounts = NDArray[np.float64]

_SEEN_AS: Final = {"q": np.int64, "d": np.float64, "b": np.bool_}


def wholes(length: int) -> tuple["array[int]", Whole]:
    """A column of whole numbers, all 0, both ways."""
    return _seen(array("q", bytes(8 * length)))


def amounts(length: int) -> tuple["array[float]", Amounts]:
    """The same of floats."""
    return _seen(array("d", bytes(8 * length)))


def flags(length: int) -> tuple["array[int]", Flags]:
    """The same of flags."""
    return _seen(array("b", bytes(length)))


def longer(each: "array[N]", length: int) -> tuple["array[N]", NDArray[Any]]:
    """A copy of a column, at least ``length`` long and half as long again as before, both ways."""
    room = max(length, len(each) + len(each) // 2)
    return _seen(each + array(each.typecode, bytes((room - len(each)) * each.itemsize)))


def _seen(each: "array[N]") -> tuple["array[N]", NDArray[Any]]:
    return each, np.frombuffer(each, _SEEN_AS[each.typecode])


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


def flagged(which: list[int], length: int) -> Flags:
    """So many flags, of which these are set."""
    found = np.zeros(length, np.bool_)
    found[which] = True
    return found


def spread(first: Whole, count: Whole) -> tuple[Places, Places]:
    """Every number of some stretches, and which stretch (by its place) each is of."""
    owner = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    within = np.arange(len(owner)) - before[owner]
    return first[owner] + within, owner
