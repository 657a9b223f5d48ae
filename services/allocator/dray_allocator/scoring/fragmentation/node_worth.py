"""The worth of a pool's nodes for one version of the workload model."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from dray.messages.decisions import Learned
from dray_allocator.nodes.columns import Whole
from dray_allocator.nodes.table import NodeTable
from dray_allocator.scoring.fragmentation.ample_cpu import AmpleCpu
from dray_allocator.scoring.fragmentation.nodes import PoolNodes
from dray_allocator.scoring.fragmentation.table import NodeStateTable, uses_cards

_MAX_BATCH: Final = 2**15
"""The limit of nodes times pods in one batch: intermediate arrays take memory."""


class NodeWorth:
    """The worth of the nodes of one table, for one version of the workload model."""

    def __init__(
        self, table: NodeTable, learned: Learned, number: int, like: "NodeWorth | None" = None
    ) -> None:
        self.learned = learned
        self.number = number
        """Unique in the pool."""
        self.nodes: PoolNodes = PoolNodes(table, learned.classes)
        if like is not None and like.nodes.is_of(table, learned.classes):
            self.nodes = like.nodes
        self.states = NodeStateTable(len(learned.classes), learned.pods)
        self.ample = AmpleCpu(self.states)

    def is_of(self, table: NodeTable, learned: Learned) -> bool:
        """Whether it is for this table and this version of the model."""
        if self.nodes.table is not table:
            return False
        if self.learned is not learned and self.learned == learned:
            self.learned = learned  # The next comparison is faster.
        return self.learned is learned

    def batches(self, rows: Whole) -> Iterator[slice]:
        """Batches of nodes, as slices of ``rows``."""
        step = max(1, _MAX_BATCH // max(self.states.pods, 1))
        return (slice(start, start + step) for start in range(0, len(rows), step))

    def shares(self) -> list[float]:
        """By pod of ``learned``, the share of all idle thousandths that it could use."""
        nodes, table, states = self.nodes, self.nodes.table, self.states
        rows = np.array(list(table.rows.values()), np.int64)
        rows = rows[table.count[rows] > 0]
        usable, idle = np.zeros(states.pods, np.float64), 0.0
        for part in self.batches(rows):
            cards = nodes.cards(rows[part])
            sums = states.sums(cards.codes, cards.first)
            usable += states.usable(sums, nodes.cpu_milli(rows[part]))
            idle += float(sums[:, -1].sum())
        found = iter((usable / max(idle, 1.0)).tolist())
        return [next(found) if uses_cards(pod) else 0.0 for pod in self.learned.pods]
