"""Scores for pods that ask for no device: nodes without cards first, then the highest load.

Such a pod adds no load. By load alone, pods without devices would use up the cpu of one idle node
after another, and its cards could not be used.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dray_allocator.nodes.columns import Flags, Whole
from dray_allocator.nodes.ratings import LoadScore, NodeBatch, Rank, Scoring
from dray_allocator.nodes.table import NodeTable

_BY_LOAD: Final = LoadScore(node_fills=True, card_fills=True)
_NO_CARDS: Final = -1
"""Below the score of every node with cards."""


class ScoreWithoutDevices:
    """The score of nodes for every placement but FragmentationAware with a workload model, which
    knows what a node's cpu is worth to pods with devices."""

    @property
    def version(self) -> int:
        """Always 0: only the table is read."""
        return 0

    def of(self, table: NodeTable, row: int, fitting: Sequence[Flags]) -> int:
        """The score of one node."""
        return _BY_LOAD.of(table, row, fitting) if table.count_at[row] else _NO_CARDS

    def of_many(self, table: NodeTable, batch: NodeBatch) -> Whole:
        """The same for many nodes."""
        has_cards = table.count[batch.rows] > 0
        return np.where(has_cards, _BY_LOAD.of_many(table, batch), _NO_CARDS)

    def order(self, table: NodeTable, row: int, cards: list[int]) -> list[int]:
        """By load; no card is asked for."""
        return _BY_LOAD.order(table, row, cards)

    def rank(self, table: NodeTable, row: int) -> Rank:
        """The load; no card is asked for."""
        return _BY_LOAD.rank(table, row)


_SCORE: Final = ScoreWithoutDevices()
WITHOUT_DEVICES: Final = Scoring("without devices", lambda table, plan: _SCORE)
