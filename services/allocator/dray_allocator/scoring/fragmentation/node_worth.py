"""What nodes are worth by what was learned last."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from dray.messages.decisions import Learned
from dray_allocator.nodes.columns import Whole
from dray_allocator.nodes.table import NodeTable
from dray_allocator.scoring.fragmentation.ample_cpu import Ample
from dray_allocator.scoring.fragmentation.nodes import Nodes
from dray_allocator.scoring.fragmentation.table import NodeStateTable, uses_cards

_TOGETHER: Final = 2**15
"""Nodes times pods that are looked at in one go: what is in between takes memory."""


class NodeWorth:
    """One node table under one version of what was learned."""

    def __init__(
        self, table: NodeTable, learned: Learned, number: int, like: "NodeWorth | None" = None
    ) -> None:
        self.learned = learned
        self.number = number
        """Differs from that of every other landscape of the pool."""
        self.nodes: Nodes = Nodes(table, learned.classes)
        if like is not None and like.nodes.is_of(table, learned.classes):
            self.nodes = like.nodes
        self.states = NodeStateTable(len(learned.classes), learned.pods)
        self.ample = Ample(self.states)

    def is_of(self, table: NodeTable, learned: Learned) -> bool:
        """Whether it is of this table and of the same that was learned."""
        if self.nodes.table is not table:
            return False
        if self.learned is not learned and self.learned == learned:
            self.learned = learned  # the next look is faster
        return self.learned is learned

    def some(self, rows: Whole) -> Iterator[slice]:
        """Nodes, as many at a time as can be looked at together."""
        step = max(1, _TOGETHER // max(self.states.pods, 1))
        return (slice(start, start + step) for start in range(0, len(rows), step))

    def shares(self) -> list[float]:
        """Per pod of ``learned``, the share of the idle milli of all nodes that it could use."""
        nodes, table, states = self.nodes, self.nodes.table, self.states
        rows = np.array(list(table.rows.values()), np.int64)
        rows = rows[table.count[rows] > 0]
        usable, idle = np.zeros(states.pods, np.float64), 0.0
        for part in self.some(rows):
            cards = nodes.cards(rows[part])
            sums = states.sums(cards.codes, cards.first)
            usable += states.usable(sums, nodes.cpu_milli(rows[part]))
            idle += float(sums[:, -1].sum())
        found = iter((usable / max(idle, 1.0)).tolist())
        return [next(found) if uses_cards(pod) else 0.0 for pod in self.learned.pods]
