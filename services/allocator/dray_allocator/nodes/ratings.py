"""What an index and a search ask of a placement policy: ratings of nodes, an order of cards.

A score is a whole number, the lowest is best, the tie orders equal ones. It is made
for the pods of one signature, so that it may depend on their shape, and it rates only nodes on
which they fit. Whatever it reads besides the node table moves ``version`` when it changes.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
import numpy as np

from dray_allocator.devices.node_devices import Card
from dray_allocator.nodes.columns import Flags, Places, Whole
from dray_allocator.nodes.load import MOST_LOAD
from dray_allocator.nodes.plan import FilterPlan
from dray_allocator.nodes.table import NodeTable

MOST_SCORE: Final = 2**22 - 1
"""Scores lie between ``-MOST_SCORE`` and this, so that score and tie make one int64."""

Rank = Callable[[Card], int]
"""A card's rating; the lowest is tried first."""


@dataclass(frozen=True, slots=True)
class Look:
    """Nodes that are rated together, and their cards."""

    rows: slice | Places
    """All rows of the node table, as a slice, or some, each once."""
    places: slice | Places
    """Of their cards: all places of the node table, or those of each row in turn."""
    suiting: Sequence[Flags]
    """Per request of the plan: which of ``places`` have enough of everything. Never those where
    there is no card (``NodeTable.there``), of which there may be some among all places."""

    def owner(self, table: NodeTable) -> Places:
        """Of which of ``rows`` (by its number among them) each of ``places`` is."""
        if isinstance(self.rows, slice):
            return table.row[self.places]
        return np.repeat(np.arange(len(self.rows)), table.count[self.rows])


class NodeScore(Protocol):
    """How pods of one signature rate nodes, and a node's cards. ``of`` and ``of_many`` agree."""

    @property
    def version(self) -> int:
        """Moves whenever a node may have another score though the node table says nothing of it."""

    def of(self, table: NodeTable, row: int, suiting: Sequence[Flags]) -> int:
        """The score of one node on which the pod fits. ``suiting``: per request of the plan, which
        of the node's cards have enough."""

    def of_many(self, table: NodeTable, look: Look) -> Whole:
        """The scores of many nodes; those of nodes on which the pod does not fit are not read."""

    def order(self, table: NodeTable, row: int, cards: list[int]) -> list[int]:
        """Cards of a node, by their index on it, for a pod with one request: the best first."""

    def rank(self, table: NodeTable, row: int) -> Rank:
        """The rating of a node's cards where several requests or constraints must be met."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """A placement policy, before it is known what for."""

    key: Hashable
    """Equal for policies that rate alike."""
    make: Callable[[NodeTable, FilterPlan], NodeScore]
    """The scores for the pods of one plan. The plan learns new kinds after that."""


class LoadScore(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """By the share in use: the mean over a node's cards of what is used most of each.

    ``node_fills``, ``card_fills``: the fullest first, else the emptiest.
    """

    node_fills: bool
    card_fills: bool

    @property
    def version(self) -> int:
        """It reads nothing but the table."""
        return 0

    def of(self, table: NodeTable, row: int, suiting: Sequence[Flags] = ()) -> int:
        """The mean load of the node's cards, or what is missing to the most."""
        load = table.load_sum_at[row] // (table.count_at[row] or 1)
        if load > MOST_LOAD:
            load = MOST_LOAD
        return MOST_LOAD - load if self.node_fills else load

    def of_many(self, table: NodeTable, look: Look) -> Whole:
        """The same of many nodes."""
        means = table.load_sum[look.rows] // np.maximum(table.count[look.rows], 1)
        load = np.minimum(means, MOST_LOAD)
        return MOST_LOAD - load if self.node_fills else load

    def order(self, table: NodeTable, row: int, cards: list[int]) -> list[int]:
        """By load, then tie."""
        loads = table.load_at[table.stretch(row)].tolist()
        return by_load(table, row, cards, loads, self.card_fills)

    def rank(self, table: NodeTable, row: int) -> Rank:
        """The load."""
        loads, sign = table.load_at[table.stretch(row)], -1 if self.card_fills else 1
        return lambda card: sign * loads[card.index]


def by_load(
    table: NodeTable, row: int, cards: Sequence[int], loads: Sequence[int], fills: bool
) -> list[int]:
    """Cards of a node, in ascending order, by load, least first or most, then by their tie."""
    found = list(cards)
    if len(found) > 1:
        found.sort(key=table.card_tie_at[table.stretch(row)].tolist().__getitem__)
        found.sort(key=loads.__getitem__, reverse=fills)  # Both sorts are stable.
    return found
