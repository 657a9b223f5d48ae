"""Tie breaks by a hash, which is deterministic for replay, and the rows with equal tie breaks.
These are rare, but their order must be deterministic, too."""

from hashlib import sha256
from typing import Final

TIE_BITS: Final = 40


def tie(identity: str) -> int:
    """The tie break of a node (by uid) or card (by ID): the same for every claim and replica."""
    return int.from_bytes(sha256(identity.encode()).digest()[: TIE_BITS // 8])


class TieRows:
    """The tie breaks of rows, with a list of equal ones."""

    def __init__(self) -> None:
        self.duplicates: dict[int, list[int]] = {}
        """Rows by tie break, for tie breaks of several rows."""
        self._first: dict[int, int] = {}
        self._of: dict[int, int] = {}

    def set(self, row: int, value: int) -> None:
        """Set the tie break of a row."""
        if self._of.get(row) == value:
            return
        self.forget(row)
        self._of[row] = value
        if value in self._first:
            self.duplicates.setdefault(value, [self._first[value]]).append(row)
        else:
            self._first[value] = row

    def forget(self, row: int) -> None:
        """Remove a row."""
        value = self._of.pop(row, -1)
        alike = self.duplicates.get(value)
        if alike is None:
            self._first.pop(value, None)
            return
        alike.remove(row)
        self._first[value] = alike[0]
        if len(alike) == 1:
            del self.duplicates[value]
