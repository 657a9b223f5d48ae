"""Loads with weighted resources, as in Volcano's binpack plugin.

A node's load is the weighted mean of ``(used + requested) / total`` over the weighted resources
that the pod requests: cpu and memory of the node, and capacities summed over its cards. If cards
would give different amounts (percent, whole cards), the largest counts. A card's load is the
weighted mean of its own use. Without such a resource, loads are those of ``LoadScore``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dray.api.names import TFLOPS, VIRTUAL_TFLOPS, VIRTUAL_VRAM, VRAM
from dray_allocator.devices.usage import FULL, MOST_LOAD
from dray_allocator.nodes.columns import Amounts, Flags, Places, Whole
from dray_allocator.nodes.plan import FilterPlan
from dray_allocator.nodes.ratings import LoadScore, NodeBatch, Rank
from dray_allocator.nodes.table import NodeTable

_CPU: Final = "cpu"
_MEMORY: Final = "memory"
_BUDGETS: Final = {TFLOPS: VIRTUAL_TFLOPS, VRAM: VIRTUAL_VRAM}
"""Physical capacities are never consumed; their budgets count instead."""
_NANO_PER_MILLI: Final = 10**6
_MOST_MILLI: Final = 2**54
"""Limit of one card's amount, so that the sum of 128 cards is an int64."""


@dataclass(frozen=True, slots=True)
class _CapacityTable:
    """One capacity, per kind of card: the total, and what each request consumes."""

    total: Whole
    asked: tuple[Whole, ...]

    @property
    def is_asked_at_all(self) -> bool:
        """Whether a request consumes the capacity of any kind of card."""
        return any(amounts.any() for amounts in self.asked)

    def is_asked(self, kinds: Places) -> Flags:
        """By card, whether a request consumes the capacity."""
        found = np.zeros(kinds.shape, np.bool_)
        for amounts in self.asked:
            found |= amounts[kinds] > 0
        return found


class WeightedScore:
    """Scores by weighted load: the highest first, or the lowest.

    Amounts are whole thousandths: sums are exact in any order, so replicas agree on scores.
    """

    def __init__(
        self, plan: FilterPlan, load: LoadScore, weights: tuple[tuple[str, int], ...]
    ) -> None:
        self._plan = plan
        self._load = load
        weights_by_name = {_BUDGETS.get(name, name): weight for name, weight in weights}
        self._cpu, self._memory = weights_by_name.pop(_CPU, 0), weights_by_name.pop(_MEMORY, 0)
        self._devices = sorted(weights_by_name.items())
        self._tables: dict[str, _CapacityTable] = {}
        self._tables_of = (-1, 0)
        """The node table's numbering and how many kinds there were."""

    @property
    def node_fills(self) -> bool:
        """Whether the highest load comes first."""
        return self._load.node_fills

    @property
    def version(self) -> int:
        """Always 0: only the table is read."""
        return 0

    def of(self, table: NodeTable, row: int, fitting: Sequence[Flags]) -> int:
        """The load of one node with the pod, or its difference to the maximum."""
        here = table.card_slice(row)
        batch = NodeBatch(np.array([row]), np.arange(here.start, here.stop), fitting)
        return self.of_many(table, batch).item(0)

    def of_many(self, table: NodeTable, batch: NodeBatch) -> Whole:
        """The same for many nodes."""
        rows = batch.rows
        mean = _Mean(len(table.count[rows]))
        for _, weight, part, whole in self._shares(table, batch):
            mean.add(weight, part, whole)
        load = mean.load(table.load_sum[rows] // np.maximum(table.count[rows], 1))
        return self._load.of_load(load)

    def parts(self, table: NodeTable, row: int) -> dict[str, float]:
        """The load of each weighted resource of a node with the pod, from 0 to 1."""
        here = table.card_slice(row)
        batch = NodeBatch(np.array([row]), np.arange(here.start, here.stop), ())
        return {
            name: float(part[0] / max(1, whole[0]))
            for name, weight, part, whole in self._shares(table, batch)
            if np.max(weight)
        }

    def _shares(
        self, table: NodeTable, batch: NodeBatch
    ) -> Iterator[tuple[str, int | Whole, Whole, Whole]]:
        """Name, weight, used with the pod, and total of each weighted resource."""
        plan, rows = self._plan, batch.rows
        if self._cpu and plan.cpu_milli:
            total = table.all_cpu_milli[rows]
            yield _CPU, self._cpu, total - table.cpu_milli[rows] + plan.cpu_milli, total
        if self._memory and plan.memory_bytes:
            total = table.all_memory_bytes[rows]
            used = total - table.memory_bytes[rows] + plan.memory_bytes
            yield _MEMORY, self._memory, used, total
        owner, height = batch.owner(table), len(table.count[rows])
        for name, weight in self._devices:
            if self._table(table, name).is_asked_at_all:
                asked, used, total = self._summed(table, name, batch.places, owner, height)
                yield name, weight * (asked > 0), used + asked, total

    def order(self, table: NodeTable, row: int, cards: list[int]) -> list[int]:
        """By load, then by tie break."""
        loads = self._card_loads(table, row)
        return table.cards_by_load(row, cards, fills=self._load.card_fills, loads=loads)

    def rank(self, table: NodeTable, row: int) -> Rank:
        """The load."""
        loads, sign = self._card_loads(table, row), self._sign
        return lambda card: sign * loads[card.index]

    @property
    def _sign(self) -> int:
        return -1 if self._load.card_fills else 1

    def _card_loads(self, table: NodeTable, row: int) -> list[int]:
        here = table.card_slice(row)
        mean = _Mean(here.stop - here.start)
        for name, weight in self._devices:
            if self._table(table, name).is_asked_at_all:
                used, total = self._use(table, name, here)
                is_asked = self._table(table, name).is_asked(table.kind[here])
                mean.add(weight * is_asked, used, total)
        return list(mean.load(table.load[here]).tolist())

    def _summed(
        self, table: NodeTable, name: str, places: slice | Places, owner: Places, height: int
    ) -> tuple[Whole, Whole, Whole]:
        """Per node: requested, used and total amounts."""
        there, kinds = table.has_card[places], table.kind[places]
        asked, used, total = (np.zeros(height, np.int64) for _ in range(3))
        in_use, whole = self._use(table, name, places)
        np.add.at(used, owner, in_use)
        np.add.at(total, owner, whole)
        for need, amounts in zip(self._plan.cards, self._table(table, name).asked, strict=True):
            most = np.zeros(height, np.int64)
            np.maximum.at(most, owner, amounts[kinds] * there)
            asked += need.count * most
        return asked, used, total

    def _use(self, table: NodeTable, name: str, places: slice | Places) -> tuple[Whole, Whole]:
        """Per card: used and total amounts; 0 without a card. A card held whole is fully used."""
        total = self._table(table, name).total[table.kind[places]] * table.has_card[places]
        free = table.free[table.dimension(name)][places] / _NANO_PER_MILLI
        left = np.clip(np.floor(free), -_MOST_MILLI, _MOST_MILLI).astype(np.int64)
        return np.where(table.open[places], total - left, total), total

    def _table(self, table: NodeTable, name: str) -> _CapacityTable:
        """The amounts per kind of card: cards of one kind have equal capacities."""
        kinds = table.card_kinds
        now = (table.numbering, kinds.count)
        if self._tables_of != now:
            self._tables_of = now
            self._tables.clear()
        if name not in self._tables:
            cards = [kinds.example(kind) for kind in range(kinds.count)]
            taken = [[need.ask.of(card) for card in cards] for need in self._plan.cards]
            self._tables[name] = _CapacityTable(
                _milli([card.shape.totals.get(name, 0) for card in cards]),
                tuple(_milli([one.nano.get(name, 0) if one else 0 for one in of]) for of in taken),
            )
        return self._tables[name]


class _Mean:
    """A weighted mean of shares."""

    def __init__(self, length: int) -> None:
        self._sum: Amounts = np.zeros(length)
        self._weight: Whole = np.zeros(length, np.int64)

    def add(self, weight: int | Whole, part: Whole, whole: Whole) -> None:
        """Add a share; it is 0 if the total is 0."""
        self._sum += weight * np.where(whole > 0, part / np.maximum(whole, 1), 0.0)
        self._weight += weight

    def load(self, otherwise: Whole) -> Whole:
        """The mean in millionths; ``otherwise`` if all weights are 0."""
        mean = np.rint(self._sum / np.maximum(self._weight, 1) * FULL)
        load = np.where(self._weight > 0, mean, otherwise)
        return np.clip(load, 0, MOST_LOAD).astype(np.int64)


def _milli(nano: Sequence[int]) -> Whole:
    """Whole thousandths, with a 0 at the end for places without a card."""
    return np.array([*(min(one // _NANO_PER_MILLI, _MOST_MILLI) for one in nano), 0], np.int64)
