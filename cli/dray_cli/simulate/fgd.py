"""Fragmentation gradient descent as published: a pod goes where most free capacity stays usable.

A node's fragmentation is the idle capacity there that a pod, picked at random from the typical
ones, is expected to be unable to use::

    F(n) = sum over typical pods m of p_m · (all idle milli, if m can't run on n or has no card;
                                             else the idle milli of cards with too little for m)

The score of a node is ``int(100 · sigmoid((F(before) - F(after)) / 1000))``. For a share, each
card is tried; whole cards are the first idle ones.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dray_cli.simulate.cluster import SimulatedCluster, TieBreak, Whole
from dray_cli.simulate.trace import CARD, MOST_CARDS, ClusterTrace, TracePod

Amounts = NDArray[np.float64]
_COVERAGE: Final = 0.95
"""The typical pods are the most frequent ones that together are this share of all pods."""
_NEVER: Final = -1


class Typical:
    """The typical pods as columns, and how much of a card's free part each of them can't use."""

    def __init__(self, cluster: SimulatedCluster, pods: tuple[TracePod, ...]) -> None:
        asked = Counter((p.cpu_milli, p.milli, p.cards, cluster.mask(p)) for p in pods)
        kept: list[tuple[tuple[int, int, int, int], int]] = []
        for one in sorted(asked.items(), key=lambda item: (-item[1], item[0])):
            if sum(count for _, count in kept) >= _COVERAGE * len(pods):
                break
            kept.append(one)
        columns = np.array([shape for shape, _ in kept], np.int64).T
        self.cpu, self.milli, self.cards, mask = columns
        counts = np.array([count for _, count in kept], np.float64)
        self.share: Amounts = counts / counts.sum()
        models = np.arange(len(cluster.models))
        self.may_run = (mask >> models[:, None] & 1).astype(np.bool_) & (self.cards > 0)
        """Per model and typical pod."""
        sizes, self.size = np.unique(self.milli, return_inverse=True)
        left = np.arange(CARD + 1)[:, None]
        self.unfit: NDArray[np.float32] = np.where(left < sizes, left, 0).astype(np.float32)
        """Per free milli of a card, and size of pod."""

    def fragmentation(self, cpu: Whole, cards: Whole, model: Whole) -> Amounts:
        """The fragmentation of nodes in these states, in thousandths of a card."""
        idle = cards.sum(axis=1)[:, None]
        unfit = self.unfit[cards].sum(axis=1)[:, self.size]
        enough = cards.max(axis=1)[:, None] >= self.milli
        whole = (cards == CARD).sum(axis=1)[:, None] >= self.cards
        runs = self.may_run[model] & (cpu[:, None] >= self.cpu)
        runs &= np.where(self.cards > 1, whole, enough)
        found: Amounts = np.where(runs, unfit, idle) @ self.share
        return found


@dataclass(slots=True)
class GpuShape:
    """The scores of all nodes for pods of one shape, as of a position in the log of changes."""

    scores: Whole
    cards: Whole
    """Per node, the card with the best score; not used for whole cards."""
    position: int = _NEVER
    stale: Any = field(default_factory=lambda: slice(None))


class Fgd:
    """The policy and its cluster. Only nodes that have changed are scored again."""

    def __init__(self, trace: ClusterTrace, seed: int, ties: str) -> None:
        self._cluster = SimulatedCluster(trace)
        self._ties = TieBreak(ties, seed, len(trace.nodes))
        self._typical = Typical(self._cluster, trace.pods)
        cluster = self._cluster
        self._now = self._typical.fragmentation(cluster.cpu, cluster.cards, cluster.model)
        self._changed: list[int] = []
        self._shapes: dict[TracePod, GpuShape] = {}

    def place(self, pod: TracePod) -> bool:
        shape = self._shapes.get(pod)
        if shape is None:
            nodes = len(self._now)
            shape = self._shapes[pod] = GpuShape(
                np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
            )
        self._catch_up(pod, shape)
        best = int(shape.scores.max())
        if best == _NEVER:
            return False
        row = self._ties.pick(np.flatnonzero(shape.scores == best))
        left = self._cluster.cards[row]
        is_share = 0 < pod.milli < CARD
        cards = [int(shape.cards[row])] if is_share else np.flatnonzero(left == CARD).tolist()
        self._cluster.take(row, cards[: pod.cards], pod)
        self._note(row)
        return True

    def _note(self, row: int) -> None:
        here, cluster = slice(row, row + 1), self._cluster
        self._now[row] = self._typical.fragmentation(
            cluster.cpu[here], cluster.cards[here], cluster.model[here]
        )[0]
        self._changed.append(row)

    def _catch_up(self, pod: TracePod, shape: GpuShape) -> None:
        if shape.position == _NEVER:
            rows = np.arange(len(self._now))
        else:
            rows = np.array(list(dict.fromkeys(self._changed[shape.position :])), np.intp)
        shape.position = len(self._changed)
        if not len(rows):
            return
        shape.scores[rows] = _NEVER
        rows = rows[self._cluster.fits(pod, rows)]
        if len(rows):
            ways = self._scores(pod, rows)
            shape.cards[rows] = ways.argmax(axis=1)
            shape.scores[rows] = ways.max(axis=1)

    def _scores(self, pod: TracePod, rows: NDArray[np.intp]) -> Whole:
        """Scores per node and way to place the pod there; ``_NEVER`` if a card has too little."""
        cluster = self._cluster
        cards = self._after(pod, cluster.cards[rows])
        count, ways, _ = cards.shape
        fits = np.ones((count, ways), np.bool_)
        if ways > 1:
            fits = cluster.cards[rows] >= pod.milli
        which, way = np.nonzero(fits)
        after = self._typical.fragmentation(
            cluster.cpu[rows][which] - pod.cpu_milli, cards[which, way], cluster.model[rows][which]
        )
        scores = np.full((count, ways), _NEVER, np.int64)
        scores[which, way] = score_of(self._now[rows][which] - after)
        return scores

    def _after(self, pod: TracePod, cards: Whole) -> Whole:
        """Per node, way and card, what is left."""
        if 0 < pod.milli < CARD:
            return cards[:, None, :] - pod.milli * np.eye(MOST_CARDS, dtype=np.int64)
        idle = cards == CARD
        taken = idle & (np.cumsum(idle, axis=1) <= pod.cards)
        return np.where(taken, 0, cards)[:, None, :]


def score_of(less: Amounts) -> Whole:
    """A score from 0 to 100; less fragmentation gives more."""
    return np.floor(100 / (1 + np.exp(-less / CARD))).astype(np.int64)
