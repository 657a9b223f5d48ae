"""Keys of nodes, by row, and the least of them: a tournament in two rounds, within the blocks whose
least key may be another one than before, and over all blocks."""

from array import array
from typing import Final

from dray_allocator.nodes.columns import Places, Whole, wholes

BLOCK: Final = 512
NONE: Final = 2**63 - 1
"""The key of a node that does not fit."""


class Keys:
    """One key for every row; ``NONE`` to begin with."""

    def __init__(self) -> None:
        self.at, self.all = _nones(1)
        """For one row, and for many; both are the same memory. Who writes here says so."""
        self._least, self._first = [NONE], [0]
        """The least key of every block, and its row."""
        self._stale: dict[int, None] = {}
        """Blocks of which it may be another one by now."""

    def make_room(self, height: int) -> None:
        """Have so many rows at least."""
        blocks = -(-height // BLOCK)
        more = blocks - len(self._least)
        if more > 0:
            known = self.all
            self.at, self.all = _nones(blocks)
            self.all[: len(known)] = known
            self._least += [NONE] * more
            self._first += [0] * more

    def put(self, row: int, key: int) -> None:
        """Give a row another key than it has."""
        self.at[row] = key
        block = row // BLOCK
        if key < self._least[block]:
            self._least[block], self._first[block] = key, row
        elif row == self._first[block]:
            self._stale[block] = None

    def written(self, rows: Places) -> None:
        """Rows may have other keys."""
        self._stale.update(dict.fromkeys((rows // BLOCK).tolist()))

    def all_written(self) -> None:
        """Every row may have another key."""
        self._stale = dict.fromkeys(range(len(self._least)))

    def least(self) -> tuple[int, int]:
        """The least key, and a row that has it; -1 where no row has one."""
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
