"""One signature's nodes in order of preference.

Every node has a key: its score, then a tie that depends on nothing but its uid; the lowest key
is the best node, and a node that can't fit has none. A node is looked at again only when the
table's log says that it changed: deciding costs what changed since, not what there is.

Where the score does not ask which cards have enough, the key that a node has if the pod fits there
is known at once. A node that changed and would not be the best gets it on trust; whether the pod
fits is looked at once it is the best, and by then it mostly changed again.
"""

from typing import Final

import numpy as np

from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.nodes.columns import Flags, Places, Whole, flagged, spread
from dray_allocator.nodes.keys import NONE, Keys
from dray_allocator.nodes.load import TIE_BITS
from dray_allocator.nodes.plan import FilterPlan
from dray_allocator.nodes.ratings import LoadScore, Look, NodeScore
from dray_allocator.nodes.table import NodeTable

_ONE_BY_ONE: Final = 16
"""Up to so many changed nodes are looked at one by one."""
_ON_TRUST: Final = 128
"""Where keys need no look at the cards, up to so many are found one by one."""
_NO_CARDS: Final[list[int]] = []
_WHOLE_SHARE: Final = 4
"""From one node in so many on, all are looked at: a gather costs more per card than a sweep."""


class NodeIndex:
    """The nodes of a node table for one plan, by a score."""

    def __init__(self, table: NodeTable, plan: FilterPlan, score: NodeScore) -> None:
        self.plan = plan
        self.table = table
        self.score = score
        self._keys = Keys()
        self._best: tuple[int, int] | None = None
        """The least key of all and its row, while they are known."""
        self._position = -1
        self._kinds_seen = -1
        self._scored_at = score.version
        self._by_load = score if isinstance(score, LoadScore) else None
        """The score, if it does not ask which cards have enough."""
        self._trusted: dict[int, None] = {}
        """Rows with the key that they have if the pod fits; it may not."""
        self._suiting: tuple[int, list[int]] = (-1, [])
        """Of the row that was looked at last, if nothing changed since, the cards that have enough
        for the plan's last need."""
        self._aside: dict[int, int] = {}
        """Rows that are passed over for one pod, and their keys."""

    def catch_up(self, selectors: SelectorCache) -> None:
        """Look at the nodes that changed since this was called last."""
        table, position = self.table, self._position
        void = False
        if self._kinds_seen != table.kinds_seen:
            void = self.plan.learn(table, selectors)
            self._kinds_seen = table.kinds_seen
        if self._by_load is None and self._scored_at != self.score.version:
            self._scored_at, void = self.score.version, True
        self._position = version = table.version
        if position == version and not void:
            return
        self._suiting = (-1, [])
        if table.height > len(self._keys.at):
            self._keys.make_room(table.height)
        if not table.rows:
            self._keys.all[:] = NONE
            self._forget_least()
        elif void or position < table.log_start:
            self._rebuild()
        else:
            self._look_at(dict.fromkeys(table.log[position - table.log_start :]))

    def best(self) -> int:
        """The row of the best node that may fit; -1 where none does."""
        while True:
            if self._best is None:
                self._best = self._find_best()
            row = self._best[1]
            if row not in self._trusted:
                return row
            self._look_at_one(row)

    def _find_best(self) -> tuple[int, int]:
        """The least key, and its row; -1 where no node has one."""
        key, row = self._keys.least()
        duplicates = self.table.ties.duplicates
        if duplicates and row >= 0 and key % 2**TIE_BITS in duplicates:
            row = self._first_of(duplicates[key % 2**TIE_BITS], key)
        return key, row

    def key(self, row: int) -> int:
        """The key of a node; ``NONE`` where it can't fit."""
        if row in self._trusted:
            self._look_at_one(row)
        return self._keys.at[row]

    def rule_out(self, row: int) -> None:
        """Pass a node over until it changes."""
        self._aside.pop(row, None)
        self._trusted.pop(row, None)
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
        best = self._best
        if key == self._keys.at[row]:
            return
        self._keys.put(row, key)
        if best is not None:
            self._best = self._best_of(best, key, row)

    def _best_of(self, best: tuple[int, int], key: int, row: int) -> tuple[int, int] | None:
        """The best node now that this one has another key; None where all must be compared."""
        if key < best[0]:
            return key, row
        return best if key > best[0] and self._keys.at[best[1]] == best[0] else None

    def suiting_of(self, row: int) -> list[int]:
        """Which cards of a node have enough of everything for the plan's last need, by their
        index on it."""
        if self._suiting[0] == row:
            return self._suiting[1]
        return self.plan.cards[-1].suiting_on(self.table, row, self.table.count_at[row])

    def keys(self) -> Whole:
        """All keys, by row. A copy."""
        if self._trusted:
            self._look_at_many(np.array(list(self._trusted), np.intp))
        return self._keys.all[: self.table.height].copy()

    def _first_of(self, rows: list[int], key: int) -> int:
        alike = [row for row in rows if self._keys.at[row] == key]
        return min(alike, key=self.table.uid)

    def _look_at(self, rows: dict[int, None]) -> None:
        if self._by_load is not None and len(rows) <= _ON_TRUST:
            self._trust(self._by_load, rows)
        elif len(rows) <= _ONE_BY_ONE:
            for row in rows:
                self._look_at_one(row)
        elif len(rows) * _WHOLE_SHARE > self.table.height:
            self._rebuild()
        else:
            self._look_at_many(np.array(list(rows), np.intp))

    def _trust(self, score: LoadScore, rows: dict[int, None]) -> None:
        """Have nodes' keys without a look at what is free there, but for those that would be as
        good as the best."""
        table, best, closer = self.table, self._best, []
        least, first = best or (-NONE, -1)
        key_at, present_at, tie_at = self._keys.at, table.present_at, table.tie_at
        for row in rows:
            key = (score.of(table, row) << TIE_BITS) + tie_at[row] if present_at[row] else NONE
            if key < least or (key == least and row != first):
                closer.append(row)
                continue
            self._trusted[row] = None
            if key != key_at[row]:
                self._keys.put(row, key)
        if best is not None and key_at[first] != least:
            self._best = None
        for row in closer:
            self._look_at_one(row)

    def _look_at_one(self, row: int) -> None:
        self._trusted.pop(row, None)
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
        suiting: list[Flags] = []
        count, found = table.count_at[row], _NO_CARDS
        for need in plan.cards:
            found = need.suiting_on(table, row, count)
            if len(found) < need.count:
                return NONE
            if self._by_load is None:
                suiting.append(flagged(found, count))
        self._suiting = row, found
        return (self.score.of(table, row, suiting) << TIE_BITS) + table.tie_at[row]

    def _look_at_many(self, rows: Places) -> None:
        table = self.table
        count = table.count[rows]
        enough = self.may_run(rows)
        width = count.item(0)
        if width and (count == width).all():
            places = (table.first[rows][:, None] + np.arange(width)).ravel()
            suiting = [need.suiting(table, places) for need in self.plan.cards]
            for need, found in zip(self.plan.cards, suiting, strict=True):
                counted = np.add.reduce(found.reshape(-1, width), axis=1, dtype=np.int64)
                enough &= counted >= need.count
        else:
            places, owner = spread(table.first[rows], count)
            suiting = [need.suiting(table, places) for need in self.plan.cards]
            for need, found in zip(self.plan.cards, suiting, strict=True):
                enough &= np.bincount(owner[found], minlength=len(rows)) >= need.count
        for row in rows.tolist() if self._trusted else ():
            self._trusted.pop(row, None)
        self._keys.all[rows] = keys = self._scored(Look(rows, places, suiting), enough)
        self._keys.written(rows)
        best, at = self._best, int(keys.argmin())
        if best is not None:
            now = self._best_of(best, keys.item(at), rows.item(at))
            self._best = None if table.ties.duplicates else now

    def _rebuild(self) -> None:
        table = self.table
        rows, places = slice(0, table.height), slice(0, table.places)
        enough = self.may_run(rows)
        suiting = [need.suiting(table, places) for need in self.plan.cards]
        for need, found in zip(self.plan.cards, suiting, strict=True):
            counted = np.bincount(table.row[places][found], minlength=table.height)
            enough &= counted >= need.count
        self._keys.all[rows] = self._scored(Look(rows, places, suiting), enough)
        self._forget_least()

    def _forget_least(self) -> None:
        """All keys are what they should be, and may be other ones than before."""
        self._trusted.clear()
        self._keys.all_written()
        self._best = None

    def may_run(self, rows: slice | Places) -> Flags:
        """Which nodes take the pod, their cards aside, as far as the node table tells."""
        table, plan = self.table, self.plan
        found = table.present[rows] & plan.may_run[table.node_kind[rows]]
        found &= table.pods[rows] >= 1
        if plan.cpu_milli:
            found &= table.cpu_milli[rows] >= plan.cpu_milli
        if plan.memory_bytes:
            found &= table.memory_bytes[rows] >= plan.memory_bytes
        return found

    def _scored(self, look: Look, enough: Flags) -> Whole:
        scores = self.score.of_many(self.table, look)
        return np.where(enough, (scores << TIE_BITS) + self.table.tie[look.rows], NONE)
