"""One signature's nodes in order of preference.

Every node has a key: its score, then a tie that depends on nothing but its uid; the lowest key
is the best node, and a node that can't fit has none. A node is looked at again only when the
board's log says that it changed: deciding costs what changed since, not what there is. Finding
the lowest key is a tournament in two rounds, over blocks of nodes and within the best block.
"""

from typing import Final

import numpy as np

from dray_allocator.board.board import Board
from dray_allocator.board.columns import Flags, Places, Whole, spread
from dray_allocator.board.plan import CardNeed, Plan
from dray_allocator.fit.selectors import Selectors
from dray_allocator.placement.modes import MOST_LOAD, TIE_BITS

BLOCK: Final = 128
NONE: Final = 2**63 - 1
_ONE_BY_ONE: Final = 4
"""Up to so many changed nodes are looked at one by one."""
_WHOLE_SHARE: Final = 4
"""From one node in so many on, all are looked at: a gather costs more per card than a sweep."""


class Index:
    """The nodes of a board for one plan. ``fills``: the fullest first, else the emptiest."""

    def __init__(self, board: Board, plan: Plan, *, fills: bool) -> None:
        self.plan = plan
        self.board = board
        self.fills = fills
        self._keys: Whole = np.full(BLOCK, NONE, np.int64)
        self._least: Whole = np.full(1, NONE, np.int64)
        self._position = -1
        self._kinds_seen = -1
        self._seen: tuple[int, int, Flags] | None = None
        """The row looked at last, when, and which of its cards had enough for the last need."""
        self._aside: dict[int, int] = {}
        """Rows that are passed over for one pod, and their keys."""

    def catch_up(self, selectors: Selectors) -> None:
        """Look at the nodes that changed since this was called last."""
        board = self.board
        void = False
        if self._kinds_seen != board.kinds_seen:
            void = self.plan.learn(board, selectors)
            self._kinds_seen = board.kinds_seen
        if not board.rows:
            self._keys[:] = self._least[:] = NONE
        elif void or self._position < board.log_start:
            self._rebuild()
        elif self._position < board.version:
            self._look_at(board.log[self._position - board.log_start :])
        self._position = board.version

    def best(self) -> int:
        """The row of the best node that may fit; -1 where none does."""
        block = int(self._least.argmin())
        key = self._least.item(block)
        if key == NONE:
            return -1
        row = block * BLOCK + int(self._keys[block * BLOCK : (block + 1) * BLOCK].argmin())
        twins = self.board.ties.twins
        if twins and key % 2**TIE_BITS in twins:
            return self._first_of(twins[key % 2**TIE_BITS], key)
        return row

    def key(self, row: int) -> int:
        """The key of a node; ``NONE`` where it can't fit."""
        return self._keys.item(row)

    def rule_out(self, row: int) -> None:
        """Pass a node over until it changes."""
        self._aside.pop(row, None)
        self._set_key(row, NONE)

    def lay_aside(self, row: int) -> None:
        """Pass a node over until ``restore``."""
        self._aside[row] = self.key(row)
        self._set_key(row, NONE)

    def restore(self) -> None:
        """Take in again what was laid aside."""
        for row, key in self._aside.items():
            self._set_key(row, key)
        self._aside.clear()

    def _set_key(self, row: int, key: int) -> None:
        before = self._keys.item(row)
        self._keys[row] = key
        block = row // BLOCK
        least = self._least.item(block)
        if key <= least:
            self._least[block] = key
        elif before == least:
            self._least[block] = np.minimum.reduce(self._keys[block * BLOCK : (block + 1) * BLOCK])

    def suiting_of(self, row: int) -> Flags:
        """Which cards of a node have enough of everything for the plan's last need."""
        seen = self._seen
        if seen is not None and seen[0] == row and seen[1] == self.board.version:
            return seen[2]
        return self.suiting(self.plan.cards[-1], self.board.stretch(row))

    def keys(self) -> Whole:
        """All keys, by row. A copy."""
        return self._keys[: self.board.height].copy()

    def _first_of(self, rows: list[int], key: int) -> int:
        alike = [row for row in rows if self._keys.item(row) == key]
        return min(alike, key=self.board.uid)

    def _look_at(self, changed: list[int]) -> None:
        rows = list(dict.fromkeys(changed))
        self._fit_length()
        if len(rows) <= _ONE_BY_ONE:
            for row in rows:
                self._set_key(row, self._key_of(row))
        elif len(rows) * _WHOLE_SHARE > self.board.height:
            self._rebuild()
        else:
            self._look_at_many(np.array(rows, np.intp))

    def _key_of(self, row: int) -> int:
        board, plan = self.board, self.plan
        if not board.present[row] or not plan.may_run[board.node_kind.item(row)]:
            return NONE
        if not self._has_resources(row):
            return NONE
        here = board.stretch(row)
        for need in plan.cards:
            found = self.suiting(need, here)
            if np.count_nonzero(found) < need.count:
                return NONE
            self._seen = (row, board.version, found)
        return key_of(board, row, fills=self.fills)

    def _has_resources(self, row: int) -> bool:
        board, plan = self.board, self.plan
        if plan.cpu_milli and plan.cpu_milli > board.cpu_milli.item(row):
            return False
        if plan.memory_bytes and plan.memory_bytes > board.memory_bytes.item(row):
            return False
        return board.pods.item(row) >= 1

    def suiting(self, need: CardNeed, places: slice | Places) -> Flags:
        """Which of these cards have enough of everything. Not to be written to."""
        board = self.board
        found = board.open[places]
        if not need.suits_all:
            found = found & need.suits[board.kind[places]] if need.suits.size else found & False
        for column, amounts, amount in need.checks:
            free = board.free[column][places]
            found = found & (free >= (amount if amounts is None else amounts[board.kind[places]]))
        return found

    def _look_at_many(self, rows: Places) -> None:
        board = self.board
        count = board.count[rows]
        enough = self.may_run(rows)
        width = count.item(0)
        if width and (count == width).all():
            places = (board.first[rows][:, None] + np.arange(width)).ravel()
            for need in self.plan.cards:
                suiting = self.suiting(need, places).reshape(-1, width)
                enough &= np.add.reduce(suiting, axis=1, dtype=np.int64) >= need.count
        else:
            places, owner = spread(board.first[rows], count)
            for need in self.plan.cards:
                found = owner[self.suiting(need, places)]
                enough &= np.bincount(found, minlength=len(rows)) >= need.count
        self._keys[rows] = self._scored(enough, board.load_sum[rows], count, board.tie[rows])
        blocks = list(dict.fromkeys((rows // BLOCK).tolist()))
        self._least[blocks] = np.minimum.reduce(self._keys.reshape(-1, BLOCK)[blocks], axis=1)

    def _rebuild(self) -> None:
        board = self.board
        self._fit_length()
        rows, places = slice(0, board.height), slice(0, board.places)
        count = board.count[rows]
        enough = self.may_run(rows)
        for need in self.plan.cards:
            suiting = board.row[places][self.suiting(need, places)]
            enough &= np.bincount(suiting, minlength=board.height) >= need.count
        self._keys[rows] = self._scored(enough, board.load_sum[rows], count, board.tie[rows])
        self._least = np.minimum.reduce(self._keys.reshape(-1, BLOCK), axis=1)

    def may_run(self, rows: slice | Places) -> Flags:
        """Which nodes take the pod, their cards aside, as far as the board tells."""
        board, plan = self.board, self.plan
        found = board.present[rows] & plan.may_run[board.node_kind[rows]]
        found &= board.pods[rows] >= 1
        if plan.cpu_milli:
            found &= board.cpu_milli[rows] >= plan.cpu_milli
        if plan.memory_bytes:
            found &= board.memory_bytes[rows] >= plan.memory_bytes
        return found

    def _scored(self, enough: Flags, load_sum: Whole, count: Whole, ties: Whole) -> Whole:
        load = np.minimum(load_sum // np.maximum(count, 1), MOST_LOAD)
        score = MOST_LOAD - load if self.fills else load
        return np.where(enough, (score << TIE_BITS) + ties, NONE)

    def _fit_length(self) -> None:
        blocks = -(-self.board.height // BLOCK)
        more = blocks - len(self._least)
        if more > 0:
            self._keys = np.append(self._keys, np.full(more * BLOCK, NONE, np.int64))
            self._least = np.append(self._least, np.full(more, NONE, np.int64))


def key_of(board: Board, row: int, *, fills: bool) -> int:
    """The key of a node on which the pod fits."""
    load = min(board.load_sum.item(row) // max(board.count.item(row), 1), MOST_LOAD)
    score = MOST_LOAD - load if fills else load
    return (score << TIE_BITS) + board.tie.item(row)
