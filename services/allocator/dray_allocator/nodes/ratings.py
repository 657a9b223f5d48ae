"""The interface of placement policies: scores of nodes, and the order of cards.

A score is a whole number; the lowest is best, and the tie break orders equal ones. A ``NodeScore``
is made for the pods of one signature, and scores only nodes on which they fit. If it reads anything
else than the node table, its ``version`` changes with that.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec
import numpy as np

from dray_allocator.devices.published_devices import Card
from dray_allocator.devices.usage import MOST_LOAD
from dray_allocator.nodes.columns import Flags, Places, Whole
from dray_allocator.nodes.plan import FilterPlan
from dray_allocator.nodes.table import NodeTable

MOST_SCORE: Final = 2**22 - 1
"""Scores are in ``-MOST_SCORE..MOST_SCORE``, so that score and tie break fit an int64."""

Load = TypeVar("Load", int, Whole)
"""The load of one node, or of many."""
Rank = Callable[[Card], int]
"""The rating of a card; the lowest is tried first."""


@dataclass(frozen=True, slots=True)
class NodeBatch:
    """Nodes that are scored together, and their cards."""

    rows: slice | Places
    """All rows of the table, as a slice, or some, each once."""
    places: slice | Places
    """The places of their cards: all places of the table, or those of each row in turn."""
    fitting: Sequence[Flags]
    """By request of the plan, which of ``places`` fit. A place without a card
    (``NodeTable.has_card``) does not fit."""

    def owner(self, table: NodeTable) -> Places:
        """For each of ``places``, the position of its row in ``rows``."""
        if isinstance(self.rows, slice):
            return table.row[self.places]
        return np.repeat(np.arange(len(self.rows)), table.count[self.rows])


class NodeScore(Protocol):
    """The scores of nodes, and the order of a node's cards, for pods of one signature. ``of`` and
    ``of_many`` return equal scores."""

    @property
    def version(self) -> int:
        """Changes when scores may change although the table does not."""

    def of(self, table: NodeTable, row: int, fitting: Sequence[Flags]) -> int:
        """The score of one node on which the pod fits. ``fitting``: by request of the plan, which
        of the node's cards fit."""

    def of_many(self, table: NodeTable, batch: NodeBatch) -> Whole:
        """The scores of many nodes; arbitrary for nodes on which the pod does not fit."""

    def order(self, table: NodeTable, row: int, cards: list[int]) -> list[int]:
        """Sort cards of a node, by their index on it, the best first; for a pod with one
        request."""

    def rank(self, table: NodeTable, row: int) -> Rank:
        """The ratings of a node's cards, for pods with several requests or constraints."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """A placement policy: makes the scores for a plan."""

    key: Hashable
    """Equal for policies with equal scores."""
    make: Callable[[NodeTable, FilterPlan], NodeScore]
    """Make the scores for the pods of a plan, before the plan's first update."""


class LoadScore(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Scores by load: the mean load of a node's cards.

    ``node_fills``, ``card_fills``: the highest load first, else the lowest.
    """

    node_fills: bool
    card_fills: bool

    @property
    def version(self) -> int:
        """Always 0: only the table is read."""
        return 0

    def of(self, table: NodeTable, row: int, fitting: Sequence[Flags] = ()) -> int:
        """The mean load of the node's cards, or its difference to the maximum."""
        load = table.load_sum_at[row] // (table.count_at[row] or 1)
        return self.of_load(min(load, MOST_LOAD))

    def of_many(self, table: NodeTable, batch: NodeBatch) -> Whole:
        """The same for many nodes."""
        means = table.load_sum[batch.rows] // np.maximum(table.count[batch.rows], 1)
        return self.of_load(np.minimum(means, MOST_LOAD))

    def of_load(self, load: Load) -> Load:
        """The score of a load, which is at most ``MOST_LOAD``."""
        return MOST_LOAD - load if self.node_fills else load

    def order(self, table: NodeTable, row: int, cards: list[int]) -> list[int]:
        """By load, then by tie break."""
        return table.cards_by_load(row, cards, fills=self.card_fills)

    def rank(self, table: NodeTable, row: int) -> Rank:
        """The load."""
        loads, sign = table.load_at[table.card_slice(row)], -1 if self.card_fills else 1
        return lambda card: sign * loads[card.index]
