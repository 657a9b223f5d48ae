"""How many pods of one signature the nodes of a pool have room for: an upper bound per node.

Each node counts for itself, so the sum is a necessary condition for several such pods. It is exact
for one request without constraints that the table decides.
"""

from typing import Final

import numpy as np

from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.nodes.columns import Amounts, Places, Whole, expand_ranges
from dray_allocator.nodes.plan import CardNeed, FilterPlan
from dray_allocator.nodes.table import NodeTable

_MANY: Final = 1e9
"""More pods than a node can run."""


class SlotCounter:
    """The slots of a table's nodes, kept up to date with its log."""

    def __init__(self, table: NodeTable, plan: FilterPlan) -> None:
        self.table = table
        self.total = 0
        """The sum over all nodes."""
        self._plan = plan
        self._slots: Whole = np.zeros(0, np.int64)
        self._position = -1
        self._kinds_version = -1

    def catch_up(self, selectors: SelectorCache) -> int:
        """Count the nodes that changed since the last call; return the total."""
        table, position = self.table, self._position
        changed, is_void = table.changed_since(position), False
        if self._kinds_version != table.kinds_version:
            is_void = self._plan.update(table, selectors)
            self._kinds_version = table.kinds_version
        self._position = table.version
        if is_void or changed is None or len(self._slots) < table.height:
            self._slots = self._count(np.arange(table.height))
            self.total = int(self._slots.sum())
        elif changed.size:
            # Few rows: np.unique takes longer.
            rows = np.array(sorted(dict.fromkeys(changed.tolist())), np.int64)
            now = self._count(rows)
            self.total += int((now - self._slots[rows]).sum())
            self._slots[rows] = now
        return self.total

    def on(self, row: int) -> int:
        """The slots of a node, as counted last."""
        return int(self._slots[row])

    def potential(self) -> int:
        """The total if no pod ran and no device were in use."""
        return int(self.potentials().sum())

    def potentials(self) -> Whole:
        """The same by row."""
        return self._count(np.arange(self.table.height), is_empty=True)

    def _count(self, rows: Places, *, is_empty: bool = False) -> Whole:
        table, plan = self.table, self._plan
        if not len(rows):
            return np.zeros(0, np.int64)
        cpu = table.all_cpu_milli[rows] if is_empty else table.cpu_milli[rows]
        memory = table.all_memory_bytes[rows] if is_empty else table.memory_bytes[rows]
        pods = np.array([table.nodes_in[row].pods for row in rows.tolist()], np.int64)
        found = np.minimum(pods if is_empty else table.pods[rows], int(_MANY))
        for free, needed in ((cpu, plan.cpu_milli), (memory, plan.memory_bytes)):
            if needed:
                found = np.minimum(found, free // needed)
        places, owner = expand_ranges(table.first[rows], table.count[rows])
        for need in plan.cards:
            of_card = self._of_cards(need, places, is_empty=is_empty)
            sums = np.bincount(owner, weights=of_card, minlength=len(rows))
            found = np.minimum(found, (sums // need.count).astype(np.int64))
        may_run = table.present[rows] & plan.may_run[table.node_kind[rows]]
        slots: Whole = np.where(may_run, np.maximum(found, 0), 0)
        return slots

    def _of_cards(self, need: CardNeed, places: Places, *, is_empty: bool) -> Amounts:
        """How many requests each card has room for."""
        table = self.table
        kinds = table.kind[places]
        if is_empty:
            fits = table.has_card[places] & need.matching[kinds]
        else:
            fits = need.fitting(table, places)
        found = np.where(fits, _MANY, 0.0)
        for column, amounts, amount, _ in need.checks:
            needed = np.full(len(places), amount) if amounts is None else amounts[kinds]
            free = self._totals(column)[kinds] if is_empty else table.free[column][places]
            with np.errstate(divide="ignore", invalid="ignore"):
                held = np.where(needed > 0, np.floor(free / needed * (1 + 1e-12)), _MANY)
            found = np.minimum(found, held)
        shared = self._are_shared()[kinds]
        found = np.where(shared, found, np.minimum(found, 1.0))
        result: Amounts = np.maximum(found, 0.0)
        return result

    def _totals(self, column: int) -> Amounts:
        """By kind of card, what it has of a capacity, in billionths."""
        kinds, names = self.table.card_kinds, list(self.table.dimensions)
        key = names[column]
        return np.array(
            [float(kinds.example(kind).shape.totals.get(key, 0)) for kind in range(kinds.count)]
        )

    def _are_shared(self) -> Amounts:
        """By kind of card, whether several claims may have it."""
        kinds = self.table.card_kinds
        examples = (kinds.example(kind).device for kind in range(kinds.count))
        return np.array([one.allow_multiple_allocations for one in examples], np.bool_)
