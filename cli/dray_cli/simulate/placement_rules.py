"""The published policies with a fixed rule: their scores, in whole numbers from 0 to 100.

Each emulates what the paper's artefact computes, with the same filters. The node with the highest
score is taken, and on it the cards with the least left; ``random`` takes any cards.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dray_cli.simulate.cluster import SimulatedCluster, TieBreak, Whole
from dray_cli.simulate.trace import CARD, ClusterTrace, TracePod

Rows = NDArray[np.intp]
_MOST_CPU_MILLI: Final = 128_000
_MOST_GPU_MILLI: Final = 8_000
_UNUSED, _USED, _IN_USED_NODE = 33, 100, 50
"""gpu-packing: highest scores of an unused node, of used cards, of a used node's idle cards."""


class ByRule:
    """One of ``RULES`` and its cluster."""

    def __init__(self, rule: str, trace: ClusterTrace, seed: int, ties: str) -> None:
        self._cluster = SimulatedCluster(trace)
        self._ties = TieBreak(ties, seed, len(trace.nodes))
        self._random = Random(f"{rule} {seed}")
        self._is_random = rule == "random"
        self._kinds: dict[int, int] = {}
        self._held = np.zeros((len(trace.nodes), 1 + 1 + _MOST_GPU_MILLI // CARD), np.int64)
        """Pods per node and kind of request."""
        self._score = self._any if self._is_random else RULES[rule](self)

    def place(self, pod: TracePod) -> bool:
        rows = np.flatnonzero(self._cluster.fits(pod))
        if not len(rows):
            return False
        scores = self._score(pod, rows)
        row = self._ties.pick(rows[scores == scores.max()])
        self._cluster.take(row, self._cards(pod, row), pod)
        if pod.cards:
            self._held[row, self._kind(pod)] += 1
        return True

    def _cards(self, pod: TracePod, row: int) -> list[int]:
        if not pod.cards:
            return []
        left = self._cluster.cards[row]
        enough = np.flatnonzero(left >= pod.milli).tolist()
        if self._is_random:
            return self._random.sample(enough, pod.cards)
        return sorted(enough, key=lambda at: int(left[at]))[: pod.cards]

    def _kind(self, pod: TracePod) -> int:
        """Shares of a card are one kind, every number of whole cards is another."""
        return self._kinds.setdefault(0 if pod.milli < CARD else pod.cards, len(self._kinds))

    def _any(self, pod: TracePod, rows: Rows) -> Whole:
        return np.array([self._random.getrandbits(53) for _ in rows], np.int64)

    def best_fit(self, pod: TracePod, rows: Rows) -> Whole:
        """The least left of cpu and cards first, each with half the weight."""
        cpu = (self._cluster.cpu[rows] - pod.cpu_milli) / _MOST_CPU_MILLI
        gpu = (self._free(rows) - pod.gpu_milli) / _MOST_GPU_MILLI
        return _whole(1 - (0.5 * cpu + 0.5 * gpu))

    def dot_product(self, pod: TracePod, rows: Rows) -> Whole:
        """The least product of free and requested amounts first."""
        cpu = self._cluster.cpu[rows] / _MOST_CPU_MILLI * (pod.cpu_milli / _MOST_CPU_MILLI)
        gpu = self._free(rows) / _MOST_GPU_MILLI * (pod.gpu_milli / _MOST_GPU_MILLI)
        return _whole(1 - (cpu + gpu) / 2)

    def packing(self, pod: TracePod, rows: Rows) -> Whole:
        """Cards in use first, then idle cards of nodes in use, then unused nodes."""
        if not pod.cards:
            return np.zeros(len(rows), np.int64)
        left = self._cluster.cards[rows]
        idle = (left == CARD).sum(axis=1)
        tightest = np.sort(np.where(left >= pod.milli, left, CARD + 1), axis=1)[:, : pod.cards]
        opened = (tightest == CARD).sum(axis=1)
        in_use = np.maximum(_USED - (tightest * 100 // CARD).sum(axis=1) // 10, _IN_USED_NODE)
        idle = np.maximum(_IN_USED_NODE - opened, _UNUSED)
        unused = np.maximum(_UNUSED - idle, idle)
        scores = np.where(opened > 0, idle, in_use)
        found: Whole = np.where(idle * CARD == self._cluster.total[rows], unused, scores)
        return found

    def clustering(self, pod: TracePod, rows: Rows) -> Whole:
        """Nodes that have pods of the same kind of request, and of no other, first."""
        if not pod.cards:
            return np.zeros(len(rows), np.int64)
        held = self._held[rows] > 0
        same, kinds = held[:, self._kind(pod)], held.sum(axis=1)
        base = np.where(same, np.where(kinds == 1, 75, 50), np.where(kinds == 0, 25, 0))
        used = 25 * (_MOST_GPU_MILLI - self._free(rows)) // _MOST_GPU_MILLI
        scores: Whole = used + base
        return scores

    def _free(self, rows: Rows) -> Whole:
        free: Whole = self._cluster.cards[rows].sum(axis=1)
        return free


RULES: Final[dict[str, Callable[[ByRule], Callable[[TracePod, Rows], Whole]]]] = {
    "random": lambda rule: rule._any,
    "bestfit": lambda rule: rule.best_fit,
    "dotprod": lambda rule: rule.dot_product,
    "gpu-packing": lambda rule: rule.packing,
    "gpu-clustering": lambda rule: rule.clustering,
}


def _whole(share: NDArray[np.float64]) -> Whole:
    return (share * 100).astype(np.int64)
