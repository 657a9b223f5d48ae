"""Keys of nodes by row, with a fast minimum: first within the changed blocks, then over all
blocks."""

from array import array
from typing import Final

from dray_allocator.nodes.columns import Places, Whole, wholes

BLOCK: Final = 512
NONE: Final = 2**63 - 1
"""The key of a node that does not fit."""


class Keys:
    """One key per row, initially ``NONE``."""

    def __init__(self) -> None:
        self.at, self.all = _nones(1)
        """Two views of the same memory, for one row and for many. A caller that writes to ``all``
        calls ``written`` or ``all_written``."""
        self._least, self._first = [NONE], [0]
        """The lowest key of every block, and its row."""
        self._stale: dict[int, None] = {}
        """Blocks whose lowest key may have changed."""

    def grow(self, height: int) -> None:
        """Grow to at least ``height`` rows."""
        blocks = -(-height // BLOCK)
        more = blocks - len(self._least)
        if more > 0:
            known = self.all
            self.at, self.all = _nones(blocks)
            self.all[: len(known)] = known
            self._least += [NONE] * more
            self._first += [0] * more

    def put(self, row: int, key: int) -> None:
        """Set a key that differs from the present one."""
        self.at[row] = key
        block = row // BLOCK
        if key < self._least[block]:
            self._least[block], self._first[block] = key, row
        elif row == self._first[block]:
            self._stale[block] = None

    def written(self, rows: Places) -> None:
        """The keys of these rows were written."""
        self._stale.update(dict.fromkeys((rows // BLOCK).tolist()))

    def all_written(self) -> None:
        """All keys were written."""
        self._stale = dict.fromkeys(range(len(self._least)))

    def least(self) -> tuple[int, int]:
        """The lowest key and a row with it; -1 if all keys are ``NONE``."""
        for block in self._stale:
            start = block * BLOCK
            row = self._first[block] = start + int(self.all[start : start + BLOCK].argmin())
            self._least[block] = self.at[row]
        self._stale.clear()
        key = min(self._least)
        return (key, self._first[self._least.index(key)]) if key != NONE else (NONE, -1)


def _nones(blocks: int) -> tuple["array[int]", Whole]:
    each, together = wholes(blocks * BLOCK)
    together[:] = NONE
    return each, together
