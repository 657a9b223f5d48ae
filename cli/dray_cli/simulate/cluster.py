"""Nodes as columns, and how one of several nodes with equal scores is picked."""

from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dray_cli.simulate.trace import CARD, MOST_CARDS, ClusterTrace, TracePod

Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]
TIES: Final = ("random", "name")


class TieBreak:
    """Picks one of several nodes with equal scores.

    ``random``: a random one each time. ``name``: the first by name, after all nodes were given
    random names once; the published figures are based on this.
    """

    def __init__(self, how: str, seed: int, nodes: int) -> None:
        self._random = Random(f"ties {seed}") if how == "random" else None
        self._place = np.random.default_rng(seed).permutation(nodes)

    def pick(self, tied: NDArray[np.intp]) -> int:
        """One of the rows."""
        if len(tied) == 1:
            return int(tied[0])
        if self._random is not None:
            return int(tied[self._random.randrange(len(tied))])
        return int(tied[np.argmin(self._place[tied])])


class SimulatedCluster:
    """What is free on each node."""

    def __init__(self, trace: ClusterTrace) -> None:
        nodes = trace.nodes
        self.models = {name: at for at, name in enumerate(sorted({node.model for node in nodes}))}
        self.cpu: Whole = _column(node.cpu_milli for node in nodes)
        self.memory: Whole = _column(node.memory_mib for node in nodes)
        self.model: Whole = _column(self.models[node.model] for node in nodes)
        self.total: Whole = _column(node.cards * CARD for node in nodes)
        self.cards: Whole = np.array(
            [[CARD] * node.cards + [0] * (MOST_CARDS - node.cards) for node in nodes], np.int64
        )
        """Per node and card, the free part in thousandths; 0 if there is no such card."""

    def mask(self, pod: TracePod) -> int:
        """One bit per model that the pod may use."""
        if not pod.models:
            return (1 << len(self.models)) - 1
        return sum(1 << self.models[name] for name in pod.models if name in self.models)

    def fits(self, pod: TracePod, rows: Any = slice(None)) -> Flags:
        """On which nodes the pod fits."""
        fits: Flags = (self.cpu[rows] >= pod.cpu_milli) & (self.memory[rows] >= pod.memory_mib)
        if pod.cards:
            fits &= (self.mask(pod) >> self.model[rows] & 1).astype(np.bool_)
            fits &= (self.cards[rows] >= pod.milli).sum(axis=1) >= pod.cards
        return fits

    def take(self, row: int, cards: list[int], pod: TracePod) -> None:
        """Give the pod these cards."""
        self.cpu[row] -= pod.cpu_milli
        self.memory[row] -= pod.memory_mib
        self.cards[row, cards] -= pod.milli


def _column(values: Any) -> Whole:
    return np.array(list(values), np.int64)
