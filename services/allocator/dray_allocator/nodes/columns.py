"""Growing columns, and ranges of indexes in them.

A column has two views of the same memory: a NumPy array for vector operations, and an ``array`` for
single elements, which takes a third of the time.
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

_DTYPES: Final = {"q": np.int64, "d": np.float64, "b": np.bool_}


def wholes(length: int) -> tuple["array[int]", Whole]:
    """Both views of a column of int64 zeros."""
    return _views(array("q", bytes(8 * length)))


def amounts(length: int) -> tuple["array[float]", Amounts]:
    """Both views of a column of float64 zeros."""
    return _views(array("d", bytes(8 * length)))


def flags(length: int) -> tuple["array[int]", Flags]:
    """Both views of a column of false flags."""
    return _views(array("b", bytes(length)))


def longer(each: "array[N]", length: int) -> tuple["array[N]", NDArray[Any]]:
    """Both views of a copy of a column that is at least ``length`` long and 1.5 times as long."""
    room = max(length, len(each) + len(each) // 2)
    return _views(each + array(each.typecode, bytes((room - len(each)) * each.itemsize)))


def _views(each: "array[N]") -> tuple["array[N]", NDArray[Any]]:
    return each, np.frombuffer(each, _DTYPES[each.typecode])


def grown(column: NDArray[Any], length: int, fill: object) -> NDArray[Any]:
    """A copy of ``column`` that is at least ``length`` long and 1.5 times as long."""
    room = max(length, len(column) + len(column) // 2)
    wider = np.full(room, fill, column.dtype)
    wider[: len(column)] = column
    return wider


class IndexRanges:
    """Allocates ranges of indexes. A released range is reused for the same length."""

    def __init__(self) -> None:
        self.end = 0
        """All indexes in use are below it."""
        self._free: dict[int, list[int]] = {}

    def take(self, length: int) -> int:
        """Allocate a range; returns its first index."""
        known = self._free.get(length)
        if known:
            return known.pop()
        first = self.end
        self.end += length
        return first

    def release(self, first: int, length: int) -> None:
        """Release a range."""
        if length:
            self._free.setdefault(length, []).append(first)


def flagged(which: list[int], length: int) -> Flags:
    """An array of ``length`` flags; those at the indexes ``which`` are set."""
    found = np.zeros(length, np.bool_)
    found[which] = True
    return found


def expand_ranges(first: Whole, count: Whole) -> tuple[Places, Places]:
    """All indexes of some ranges, and for each index the position of its range."""
    owner = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    within = np.arange(len(owner)) - before[owner]
    return first[owner] + within, owner
