"""The nodes of a pool in the order of their scores, for pods of one signature.

Every node has a key: its score, then a tie break that depends on its uid only. The node with the
lowest key is the best one; a node that does not fit has the key ``NONE``. A node is evaluated again
only after the log of the table says that it changed, so a decision costs time by the number of
changes, not of nodes.

If the score does not depend on which cards fit, a changed node that is not the best gets its key
without a check of its cards (it is "unchecked"). It is checked when it becomes the best; most nodes
change again before that.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.nodes.columns import Flags, Places, Whole, expand_ranges, flagged
from dray_allocator.nodes.keys import NONE, Keys
from dray_allocator.nodes.load import TIE_BITS
from dray_allocator.nodes.plan import FilterPlan
from dray_allocator.nodes.ratings import LoadScore, NodeBatch, NodeScore
from dray_allocator.nodes.table import NodeTable

_ONE_BY_ONE: Final = 8
"""The best nodes are found one by one, the others by sorting."""
_MAX_ONE_BY_ONE: Final = 16
"""Up to this many changed nodes are evaluated one by one."""
_MAX_UNCHECKED: Final = 128
"""The same, if the cards are not checked."""
_NO_CARDS: Final[list[int]] = []
_WHOLE_SHARE: Final = 4
"""If at least one node in this many changed, all nodes are evaluated: NumPy indexing costs more per
card than slices."""


class NodeIndex:
    """The nodes of a table in the order of a score, for one plan."""

    def __init__(self, table: NodeTable, plan: FilterPlan, score: NodeScore) -> None:
        self.plan = plan
        self.table = table
        self.score = score
        self._keys = Keys()
        self._best: tuple[int, int] | None = None
        """The lowest key and its row, or None if they must be computed."""
        self._position = -1
        self._kinds_version = -1
        self._scored_at = score.version
        self._by_load = score if isinstance(score, LoadScore) else None
        """The score, if it does not depend on which cards fit."""
        self._unchecked: dict[int, None] = {}
        """Rows whose key assumes that the pod fits."""
        self._fitting: tuple[int, list[int]] = (-1, [])
        """The row that was evaluated last, and its cards that fit the last request of the plan."""
        self._skipped: dict[int, int] = {}
        """Rows that are skipped for one pod, and their keys."""

    def catch_up(self, selectors: SelectorCache) -> None:
        """Evaluate the nodes that changed since the last call."""
        table, position = self.table, self._position
        void = False
        if self._kinds_version != table.kinds_version:
            void = self.plan.update(table, selectors)
            self._kinds_version = table.kinds_version
        if self._by_load is None and self._scored_at != self.score.version:
            self._scored_at, void = self.score.version, True
        self._position = version = table.version
        if position == version and not void:
            return
        self._fitting = (-1, [])
        if table.height > len(self._keys.at):
            self._keys.grow(table.height)
        if not table.rows:
            self._keys.all[:] = NONE
            self._forget_least()
        elif void or position < table.log_start:
            self._rebuild()
        else:
            self._evaluate(dict.fromkeys(table.log[position - table.log_start :]))

    def best(self) -> int:
        """The row of the best node that fits by the table; -1 if there is none."""
        while True:
            if self._best is None:
                self._best = self._find_best()
            row = self._best[1]
            if row not in self._unchecked:
                return row
            self._evaluate_row(row)

    def _find_best(self) -> tuple[int, int]:
        """The lowest key and its row; -1 if no node fits."""
        key, row = self._keys.least()
        duplicates = self.table.ties.duplicates
        if duplicates and row >= 0 and key % 2**TIE_BITS in duplicates:
            row = self._first_of(duplicates[key % 2**TIE_BITS], key)
        return key, row

    def key(self, row: int) -> int:
        """The key of a node; ``NONE`` if it does not fit."""
        if row in self._unchecked:
            self._evaluate_row(row)
        return self._keys.at[row]

    def first(self, most: int) -> list[tuple[int, int]]:
        """The rows of the best nodes, at most so many, with their scores; the best first."""
        found: list[tuple[int, int]] = []
        while len(found) < most and (row := self.best()) >= 0:
            found.append((row, self._keys.at[row] >> TIE_BITS))
            self.skip(row)
        self.restore_skipped()
        return found

    def in_order(self, rows: Sequence[int] | None = None) -> Iterator[int]:
        """All nodes that fit by the table, or those of ``rows``, the best first. Nodes may be
        excluded meanwhile; the others are skipped, one by one, until ``restore_skipped``."""
        if rows is None:
            for row in islice(iter(self.best, -1), _ONE_BY_ONE):
                yield row
                if self.key(row) != NONE:
                    self.skip(row)
        table, keys = self.table, self.keys()
        among = np.arange(table.height) if rows is None else np.array(rows, np.intp)
        among = among[keys[among] != NONE]
        found = among[np.argsort(keys[among])].tolist()
        if table.ties.duplicates:
            found.sort(key=lambda row: (keys.item(row), table.uid(row)))
        yield from found

    def exclude(self, row: int) -> None:
        """Exclude a node until it changes."""
        self._skipped.pop(row, None)
        self._unchecked.pop(row, None)
        self._set_key(row, NONE)

    def skip(self, row: int) -> None:
        """Exclude a node until ``restore_skipped``."""
        self._skipped.setdefault(row, self.key(row))
        self._set_key(row, NONE)

    def restore_skipped(self) -> None:
        """Include all skipped nodes again."""
        for row, key in self._skipped.items():
            self._set_key(row, key)
        self._skipped.clear()

    def _set_key(self, row: int, key: int) -> None:
        best = self._best
        if key == self._keys.at[row]:
            return
        self._keys.put(row, key)
        if best is not None:
            self._best = self._best_of(best, key, row)

    def _best_of(self, best: tuple[int, int], key: int, row: int) -> tuple[int, int] | None:
        """The best node after this row got another key; None if all keys must be compared."""
        if key < best[0]:
            return key, row
        return best if key > best[0] and self._keys.at[best[1]] == best[0] else None

    def fitting_cards(self, row: int) -> list[int]:
        """The cards of a node that fit the last request of the plan, by their index on the node."""
        if self._fitting[0] == row:
            return self._fitting[1]
        return self.plan.cards[-1].fitting_on(self.table, row, self.table.count_at[row])

    def keys(self) -> Whole:
        """All keys, by row. A copy."""
        if self._unchecked:
            self._evaluate_rows(np.array(list(self._unchecked), np.intp))
        return self._keys.all[: self.table.height].copy()

    def _first_of(self, rows: list[int], key: int) -> int:
        alike = [row for row in rows if self._keys.at[row] == key]
        return min(alike, key=self.table.uid)

    def _evaluate(self, rows: dict[int, None]) -> None:
        if self._by_load is not None and len(rows) <= _MAX_UNCHECKED:
            self._set_unchecked(self._by_load, rows)
        elif len(rows) <= _MAX_ONE_BY_ONE:
            for row in rows:
                self._evaluate_row(row)
        elif len(rows) * _WHOLE_SHARE > self.table.height:
            self._rebuild()
        else:
            self._evaluate_rows(np.array(list(rows), np.intp))

    def _set_unchecked(self, score: LoadScore, rows: dict[int, None]) -> None:
        """Set the keys of nodes without a check of their cards; nodes at least as good as the best
        are checked."""
        table, best, candidates = self.table, self._best, []
        least, first = best or (-NONE, -1)
        key_at, present_at, tie_at = self._keys.at, table.present_at, table.tie_at
        for row in rows:
            key = (score.of(table, row) << TIE_BITS) + tie_at[row] if present_at[row] else NONE
            if key < least or (key == least and row != first):
                candidates.append(row)
                continue
            self._unchecked[row] = None
            if key != key_at[row]:
                self._keys.put(row, key)
        if best is not None and key_at[first] != least:
            self._best = None
        for row in candidates:
            self._evaluate_row(row)

    def _evaluate_row(self, row: int) -> None:
        self._unchecked.pop(row, None)
        self._set_key(row, self._key_of(row))

    def _key_of(self, row: int) -> int:
        table, plan = self.table, self.plan
        if (
            not table.present_at[row]
            or not plan.may_run_at[table.node_kind_at[row]]
            or (plan.cpu_milli and plan.cpu_milli > table.cpu_milli_at[row])
            or (plan.memory_bytes and plan.memory_bytes > table.memory_bytes_at[row])
            or table.pods_at[row] < 1
        ):
            return NONE
        fitting: list[Flags] = []
        count, found = table.count_at[row], _NO_CARDS
        for need in plan.cards:
            found = need.fitting_on(table, row, count)
            if len(found) < need.count:
                return NONE
            if self._by_load is None:
                fitting.append(flagged(found, count))
        self._fitting = row, found
        return (self.score.of(table, row, fitting) << TIE_BITS) + table.tie_at[row]

    def _evaluate_rows(self, rows: Places) -> None:
        table = self.table
        count = table.count[rows]
        enough = self.may_run(rows)
        width = count.item(0)
        if width and (count == width).all():
            places = (table.first[rows][:, None] + np.arange(width)).ravel()
            fitting = [need.fitting(table, places) for need in self.plan.cards]
            for need, found in zip(self.plan.cards, fitting, strict=True):
                counted = np.add.reduce(found.reshape(-1, width), axis=1, dtype=np.int64)
                enough &= counted >= need.count
        else:
            places, owner = expand_ranges(table.first[rows], count)
            fitting = [need.fitting(table, places) for need in self.plan.cards]
            for need, found in zip(self.plan.cards, fitting, strict=True):
                enough &= np.bincount(owner[found], minlength=len(rows)) >= need.count
        for row in rows.tolist() if self._unchecked else ():
            self._unchecked.pop(row, None)
        self._keys.all[rows] = keys = self._scored(NodeBatch(rows, places, fitting), enough)
        self._keys.written(rows)
        best, at = self._best, int(keys.argmin())
        if best is not None:
            now = self._best_of(best, keys.item(at), rows.item(at))
            self._best = None if table.ties.duplicates else now

    def _rebuild(self) -> None:
        table = self.table
        rows, places = slice(0, table.height), slice(0, table.places)
        enough = self.may_run(rows)
        fitting = [need.fitting(table, places) for need in self.plan.cards]
        for need, found in zip(self.plan.cards, fitting, strict=True):
            counted = np.bincount(table.row[places][found], minlength=table.height)
            enough &= counted >= need.count
        self._keys.all[rows] = self._scored(NodeBatch(rows, places, fitting), enough)
        self._forget_least()

    def _forget_least(self) -> None:
        """All keys were written."""
        self._unchecked.clear()
        self._keys.all_written()
        self._best = None

    def may_run(self, rows: slice | Places) -> Flags:
        """Which nodes fit the pod by the table, apart from their cards."""
        table, plan = self.table, self.plan
        found = table.present[rows] & plan.may_run[table.node_kind[rows]]
        found &= table.pods[rows] >= 1
        if plan.cpu_milli:
            found &= table.cpu_milli[rows] >= plan.cpu_milli
        if plan.memory_bytes:
            found &= table.memory_bytes[rows] >= plan.memory_bytes
        return found

    def _scored(self, batch: NodeBatch, enough: Flags) -> Whole:
        scores = self.score.of_many(self.table, batch)
        return np.where(enough, (scores << TIE_BITS) + self.table.tie[batch.rows], NONE)
