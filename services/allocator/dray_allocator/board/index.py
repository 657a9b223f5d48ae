"""One signature's nodes in order of preference.

Every node has a key: its score, then a tie that depends on nothing but its uid; the lowest key
is the best node, and a node that can't fit has none. A node is looked at again only when the
board's log says that it changed: deciding costs what changed since, not what there is. Finding
the lowest key is a tournament in two rounds, over blocks of nodes and within the best block.
"""

from array import array
from typing import Final

import numpy as np

from dray_allocator.board.board import Board
from dray_allocator.board.columns import Flags, Places, Whole, spread, wholes
from dray_allocator.board.plan import Plan
from dray_allocator.fit.selectors import Selectors
from dray_allocator.placement.modes import TIE_BITS
from dray_allocator.placement.scores import LoadScore, Look, NodeScore

BLOCK: Final = 128
NONE: Final = 2**63 - 1
_ONE_BY_ONE: Final = 16
"""Up to so many changed nodes are looked at one by one."""
_WHOLE_SHARE: Final = 4
"""From one node in so many on, all are looked at: a gather costs more per card than a sweep."""


class Index:
    """The nodes of a board for one plan, by a score."""

    def __init__(self, board: Board, plan: Plan, score: NodeScore) -> None:
        self.plan = plan
        self.board = board
        self.score = score
        self._key_at, self._keys = _nones(1)
        self._least: Whole = np.full(1, NONE, np.int64)
        """The least key of every block."""
        self._stale: dict[int, None] = {}
        """Blocks of which it may be another one by now."""
        self._best: tuple[int, int] | None = None
        """The least key of all and its row, while they are known."""
        self._position = -1
        self._kinds_seen = -1
        self._scored_at = score.version
        self._tells = not isinstance(score, LoadScore)
        """Whether the score asks which cards have enough."""
        self._aside: dict[int, int] = {}
        """Rows that are passed over for one pod, and their keys."""

    def catch_up(self, selectors: Selectors) -> None:
        """Look at the nodes that changed since this was called last."""
        board, version = self.board, self.board.version
        void = False
        if self._kinds_seen != board.kinds_seen:
            void = self.plan.learn(board, selectors)
            self._kinds_seen = board.kinds_seen
        scored_at = self.score.version
        if self._scored_at != scored_at:
            self._scored_at, void = scored_at, True
        if self._position == version and not void:
            return
        if not board.rows:
            self._keys[:] = self._least[:] = NONE
            self._best = None
        elif void or self._position < board.log_start:
            self._rebuild()
        else:
            self._look_at(board.log[self._position - board.log_start :])
        self._position = version

    def best(self) -> int:
        """The row of the best node that may fit; -1 where none does."""
        if self._best is None:
            self._best = self._find_best()
        return self._best[1]

    def _find_best(self) -> tuple[int, int]:
        """The least key, and its row; -1 where no node has one."""
        if self._stale:
            blocks = list(self._stale)
            self._least[blocks] = np.minimum.reduce(self._keys.reshape(-1, BLOCK)[blocks], axis=1)
            self._stale.clear()
        block = int(self._least.argmin())
        key = self._least.item(block)
        if key == NONE:
            return NONE, -1
        row = block * BLOCK + int(self._keys[block * BLOCK : (block + 1) * BLOCK].argmin())
        twins = self.board.ties.twins
        if twins and key % 2**TIE_BITS in twins:
            row = self._first_of(twins[key % 2**TIE_BITS], key)
        return key, row

    def key(self, row: int) -> int:
        """The key of a node; ``NONE`` where it can't fit."""
        return self._key_at[row]

    def rule_out(self, row: int) -> None:
        """Pass a node over until it changes."""
        self._aside.pop(row, None)
        self._set_key(row, NONE)

    def lay_aside(self, row: int) -> None:
        """Pass a node over until ``restore``."""
        self._aside.setdefault(row, self.key(row))
        self._set_key(row, NONE)

    def restore(self) -> None:
        """Take in again what was laid aside."""
        for row, key in self._aside.items():
            self._set_key(row, key)
        self._aside.clear()

    def _set_key(self, row: int, key: int) -> None:
        before = self._key_at[row]
        if key == before:
            return
        self._key_at[row] = key
        self._stale[row // BLOCK] = None
        self._best = self._best_beside(key, row)

    def _best_beside(self, key: int, row: int) -> tuple[int, int] | None:
        """The best node now that this one has another key; None where all must be compared."""
        best = self._best
        if best is None:
            return None
        if key < best[0]:
            return key, row
        return best if key > best[0] and self._key_at[best[1]] == best[0] else None

    def suiting_of(self, row: int) -> list[int]:
        """Which cards of a node have enough of everything for the plan's last need, by their
        index on it."""
        return self.plan.cards[-1].suiting_on(self.board, row, self.board.count_at[row])

    def keys(self) -> Whole:
        """All keys, by row. A copy."""
        return self._keys[: self.board.height].copy()

    def _first_of(self, rows: list[int], key: int) -> int:
        alike = [row for row in rows if self._key_at[row] == key]
        return min(alike, key=self.board.uid)

    def _look_at(self, changed: list[int]) -> None:
        rows = list(dict.fromkeys(changed))
        if self.board.height > len(self._key_at):
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
        if not board.present_at[row] or not plan.may_run_at[board.node_kind_at[row]]:
            return NONE
        if not self._has_resources(row):
            return NONE
        suiting: list[Flags] = []
        for need in plan.cards:
            count = board.count_at[row] if self._tells else need.count
            found = need.suiting_on(board, row, count)
            if len(found) < need.count:
                return NONE
            if self._tells:
                suiting.append(_flags(found, count))
        return (self.score.of(board, row, suiting) << TIE_BITS) + board.tie_at[row]

    def _has_resources(self, row: int) -> bool:
        board, plan = self.board, self.plan
        if plan.cpu_milli and plan.cpu_milli > board.cpu_milli_at[row]:
            return False
        if plan.memory_bytes and plan.memory_bytes > board.memory_bytes_at[row]:
            return False
        return board.pods_at[row] >= 1

    def _look_at_many(self, rows: Places) -> None:
        board = self.board
        count = board.count[rows]
        enough = self.may_run(rows)
        width = count.item(0)
        if width and (count == width).all():
            places = (board.first[rows][:, None] + np.arange(width)).ravel()
            suiting = [need.suiting(board, places) for need in self.plan.cards]
            for need, found in zip(self.plan.cards, suiting, strict=True):
                counted = np.add.reduce(found.reshape(-1, width), axis=1, dtype=np.int64)
                enough &= counted >= need.count
        else:
            places, owner = spread(board.first[rows], count)
            suiting = [need.suiting(board, places) for need in self.plan.cards]
            for need, found in zip(self.plan.cards, suiting, strict=True):
                enough &= np.bincount(owner[found], minlength=len(rows)) >= need.count
        self._keys[rows] = keys = self._scored(Look(rows, places, suiting), enough)
        self._stale.update(dict.fromkeys((rows // BLOCK).tolist()))
        best = int(keys.argmin())
        is_sure = not board.ties.twins
        self._best = self._best_beside(keys.item(best), rows.item(best)) if is_sure else None

    def _rebuild(self) -> None:
        board = self.board
        self._fit_length()
        rows, places = slice(0, board.height), slice(0, board.places)
        enough = self.may_run(rows)
        suiting = [need.suiting(board, places) for need in self.plan.cards]
        for need, found in zip(self.plan.cards, suiting, strict=True):
            counted = np.bincount(board.row[places][found], minlength=board.height)
            enough &= counted >= need.count
        self._keys[rows] = self._scored(Look(rows, places, suiting), enough)
        self._least = np.minimum.reduce(self._keys.reshape(-1, BLOCK), axis=1)
        self._stale.clear()
        self._best = None

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

    def _scored(self, look: Look, enough: Flags) -> Whole:
        scores = self.score.of_many(self.board, look)
        return np.where(enough, (scores << TIE_BITS) + self.board.tie[look.rows], NONE)

    def _fit_length(self) -> None:
        blocks = -(-self.board.height // BLOCK)
        more = blocks - len(self._least)
        if more > 0:
            known = self._keys
            self._key_at, self._keys = _nones(blocks)
            self._keys[: len(known)] = known
            self._least = np.append(self._least, np.full(more, NONE, np.int64))


def _nones(blocks: int) -> tuple["array[int]", Whole]:
    each, together = wholes(blocks * BLOCK)
    together[:] = NONE
    return each, together


def _flags(which: list[int], count: int) -> Flags:
    found = np.zeros(count, np.bool_)
    found[which] = True
    return found
