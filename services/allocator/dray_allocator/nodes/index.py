"""The nodes of a pool in the order of their scores, for pods of one signature.

Every node has a key: its score, then a tie break that depends on its uid only. The node with the
lowest key is the best one; a node that does not fit has the key ``NONE``. A node is evaluated again
only after the log of the table says that it changed, so the time for a decision depends on the
number of changes, not of nodes.

If the score is the load of a node, it does not depend on which cards fit. A changed node then gets
its key without a check of its cards, unless its best card has too little left (it is "unchecked").
It is checked when it becomes the best; most nodes change again before that.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.devices.usage import MOST_LOAD
from dray_allocator.nodes.columns import (
    Flags,
    Places,
    Whole,
    expand_ranges,
    flagged,
    flags,
    longer,
    wholes,
)
from dray_allocator.nodes.plan import CardNeed, FilterPlan
from dray_allocator.nodes.ratings import Load, LoadScore, NodeBatch, NodeScore
from dray_allocator.nodes.table import NodeTable
from dray_allocator.nodes.tie_break import TIE_BITS

NONE: Final = 2**63 - 1
"""The key of a node that does not fit."""
BLOCK: Final = 512
_ONE_BY_ONE: Final = 8
"""The best nodes are found one by one, the others by sorting."""
_MAX_ONE_BY_ONE: Final = 16
"""Up to this many changed nodes are evaluated one by one."""
_MAX_LOADS_ONE_BY_ONE: Final = 4
"""The same, if the cards are not checked: NumPy takes longer for a few nodes."""
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
        self._keys = Keys(table.height)
        self._best: tuple[int, int] | None = None
        """The lowest key and its row, or None if they must be computed."""
        self._position = -1
        self._kinds_version = -1
        self._scored_at = score.version
        self._by_load = score if isinstance(score, LoadScore) else None
        """The score, if it does not depend on which cards fit."""
        self._unchecked_at, self._unchecked = flags(len(self._keys.at))
        """By row, whether its key assumes that the pod fits."""
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
        if (height := table.height) > len(self._keys.at):
            self._keys.grow(height)
            self._unchecked_at, self._unchecked = longer(self._unchecked_at, len(self._keys.at))
        changed = None if void else table.changed_since(position)
        if not table.rows:
            self._keys.all[:] = NONE
            self._forget_least()
        elif changed is None or len(changed) > height:
            self._rebuild()
        elif self._by_load is not None:
            self._set_loads(self._by_load, changed)
        else:
            self._evaluate(dict.fromkeys(changed.tolist()))

    def best(self) -> int:
        """The row of the best node that fits by the table; -1 if there is none."""
        while True:
            if self._best is None:
                self._best = self._find_best()
            row = self._best[1]
            if row < 0 or not self._unchecked_at[row]:
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
        if self._unchecked_at[row]:
            self._evaluate_row(row)
        return self._keys.at[row]

    def first(self, most: int) -> list[tuple[int, int]]:
        """The rows of at most ``most`` of the best nodes, with their scores; the best first."""
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
        self._unchecked_at[row] = False
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

    def cards_in_order(self, row: int) -> list[int]:
        """The cards of a node that fit the last request of the plan, by their index on the node;
        the best first."""
        table, fitting = self.table, self._fitting[1]
        if self._fitting[0] != row:
            fitting = _fitting_on(table, self.plan.cards[-1], row, table.count_at[row])
        if len(fitting) < 2:
            return fitting
        if self._by_load is not None:
            return table.cards_by_load(row, fitting, fills=self._by_load.card_fills)
        return self.score.order(table, row, fitting)

    def keys(self) -> Whole:
        """All keys, by row. A copy."""
        unchecked = self._unchecked[: self.table.height].nonzero()[0]
        if unchecked.size:
            self._evaluate_rows(unchecked)
        return self._keys.all[: self.table.height].copy()

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

    def _first_of(self, rows: list[int], key: int) -> int:
        alike = [row for row in rows if self._keys.at[row] == key]
        return min(alike, key=self.table.uid)

    def _set_loads(self, score: LoadScore, rows: Whole) -> None:
        """Set the keys of changed nodes without a check of their cards."""
        if len(rows) <= _MAX_LOADS_ONE_BY_ONE:
            for row in rows.tolist():
                self._set_load(score, row)
            return
        table = self.table
        keys = _key(score, table.mean_load[rows], table.tie[rows])
        may_fit = table.present[rows]
        for need in self.plan.cards:
            for check in need.checks:
                may_fit = may_fit & (table.most_free[check.column][rows] >= check.least)
        keys[~may_fit] = NONE
        self._keys.all[rows] = keys
        self._keys.written(rows)
        self._unchecked[rows] = may_fit
        if self._best is not None:
            at = int(keys.argmin())
            best = self._best_of(self._best, keys.item(at), rows.item(at))
            self._best = None if table.ties.duplicates else best

    def _set_load(self, score: LoadScore, row: int) -> None:
        table = self.table
        may_fit, most_free_at = table.present_at[row], table.most_free_at
        for need in self.plan.cards:
            for column, _, _, least in need.checks:
                if most_free_at[column][row] < least:  # Not even the node's best card has it.
                    may_fit = False
        self._unchecked_at[row] = may_fit
        key = _key(score, table.mean_load_at[row], table.tie_at[row]) if may_fit else NONE
        self._set_key(row, key)

    def _evaluate(self, rows: dict[int, None]) -> None:
        if len(rows) <= _MAX_ONE_BY_ONE:
            for row in rows:
                self._evaluate_row(row)
        elif len(rows) * _WHOLE_SHARE > self.table.height:
            self._rebuild()
        else:
            self._evaluate_rows(np.array(list(rows), np.intp))

    def _evaluate_row(self, row: int) -> None:
        self._unchecked_at[row] = False
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
            found = _fitting_on(table, need, row, count)
            if len(found) < need.count:
                return NONE
            if self._by_load is None:
                fitting.append(flagged(found, count))
        self._fitting = row, found
        if self._by_load is not None:
            return _key(self._by_load, table.mean_load_at[row], table.tie_at[row])
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
        self._unchecked[rows] = False
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
        self._unchecked[:] = False
        self._keys.all_written()
        self._best = None

    def _scored(self, batch: NodeBatch, enough: Flags) -> Whole:
        scores = self.score.of_many(self.table, batch)
        return np.where(enough, (scores << TIE_BITS) + self.table.tie[batch.rows], NONE)


class Keys:
    """One key per row, initially ``NONE``, with a fast minimum: first within the changed blocks,
    then over all blocks."""

    def __init__(self, height: int = 1) -> None:
        blocks = max(1, -(-height // BLOCK))
        self.at, self.all = _nones(blocks)
        """Two views of the same memory, for one row and for many. A caller that writes to ``all``
        calls ``written`` or ``all_written``."""
        self._least, self._first = [NONE] * blocks, [0] * blocks
        """The lowest key of every block, and its row."""
        self._stale_at = bytearray(blocks)
        """By block, whether its lowest key may have changed."""
        self._stale = np.frombuffer(self._stale_at, np.bool_)

    def grow(self, height: int) -> None:
        """Grow to at least ``height`` rows."""
        blocks = -(-height // BLOCK)
        more = blocks - len(self._least)
        if more > 0:
            known, stale = self.all, self._stale_at
            self.at, self.all = _nones(blocks)
            self.all[: len(known)] = known
            self._least += [NONE] * more
            self._first += [0] * more
            self._stale_at = stale + bytes(more)
            self._stale = np.frombuffer(self._stale_at, np.bool_)

    def put(self, row: int, key: int) -> None:
        """Set a key that differs from the present one."""
        self.at[row] = key
        block = row // BLOCK
        if key < self._least[block]:
            self._least[block], self._first[block] = key, row
        elif row == self._first[block]:
            self._stale_at[block] = True

    def written(self, rows: Places) -> None:
        """The keys of these rows were written."""
        self._stale[rows // BLOCK] = True

    def all_written(self) -> None:
        """All keys were written."""
        self._stale[:] = True

    def least(self) -> tuple[int, int]:
        """The lowest key and a row with it; -1 if all keys are ``NONE``."""
        block = -1
        while (block := self._stale_at.find(True, block + 1)) >= 0:
            start = block * BLOCK
            row = self._first[block] = start + int(self.all[start : start + BLOCK].argmin())
            self._least[block] = self.at[row]
            self._stale_at[block] = False
        key = min(self._least)
        return (key, self._first[self._least.index(key)]) if key != NONE else (NONE, -1)


def _key(score: LoadScore, load: Load, tie: Load) -> Load:
    """The key of a node, or of many, by ``LoadScore.of_load``."""
    return ((MOST_LOAD - load if score.node_fills else load) << TIE_BITS) + tie


def _nones(blocks: int) -> tuple["array[int]", Whole]:
    each, together = wholes(blocks * BLOCK)
    together[:] = NONE
    return each, together


def _fitting_on(table: NodeTable, need: CardNeed, row: int, most: int) -> list[int]:
    """As ``CardNeed.fitting``: at most ``most`` cards of one node that fit, by their index on the
    node. Without NumPy, which takes longer for a few cards."""
    first, found = table.first_at[row], []
    open_at, kind_at, free_at = table.open_at, table.kind_at, table.free_at
    matches_all, matching_at, checks = need.matches_all, need.matching_at, need.checks
    for place in range(first, first + table.count_at[row]):
        if not open_at[place] or not (matches_all or (matching_at and matching_at[kind_at[place]])):
            continue
        for column, amounts, amount, _ in checks:
            least = amount if amounts is None else amounts[kind_at[place]]
            if free_at[column][place] < least:
                break
        else:
            found.append(place - first)
            if len(found) == most:
                break
    return found
