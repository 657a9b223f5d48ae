"""The scores of nodes and cards for pods of one signature: the cost of a placement to other pods.

The score of a node is the worth that it loses if the pod uses its best card; the lowest is best.
For several cards, the cards with the least free are assumed; the search may choose others.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dray.messages.decisions import Learned
from dray_allocator.nodes.columns import Flags, Whole
from dray_allocator.nodes.plan import FilterPlan
from dray_allocator.nodes.ratings import MOST_SCORE, NodeBatch, NodeScore, Rank, Scoring
from dray_allocator.nodes.table import NodeTable
from dray_allocator.scoring.fragmentation.cost import UNIT, FragmentationCost
from dray_allocator.scoring.fragmentation.node_worth import NodeWorth
from dray_allocator.scoring.fragmentation.nodes import KindsState, distinguish_models, kinds_state

_MOST_KNOWN: Final = 50_000
_KEY_BITS: Final = 40
"""Bits of a cache key for the cards of a node that fit; the other bits are the node's number."""


class NodeWorths:
    """The current ``NodeWorth`` of a pool."""

    def __init__(self) -> None:
        self._current: NodeWorth | None = None
        self._made = 0
        self._kinds: KindsState | None = None

    @property
    def scoring(self) -> Scoring:
        """The scoring with it; made on each call, because this object is mutable."""
        return Scoring(self, self._score)

    @property
    def latest(self) -> NodeWorth | None:
        """The latest one, or None."""
        return self._current

    @property
    def current(self) -> NodeWorth:
        """The latest one.

        Raises:
            RuntimeError: none was set.
        """
        if self._current is None:
            raise RuntimeError("no NodeWorth: call set before scoring")
        return self._current

    def set(self, table: NodeTable, learned: Learned) -> None:
        """Use this version of the model for this table.

        Must be called before an index is read: kinds of cards may be renumbered.
        """
        if kinds_state(table) != self._kinds:
            distinguish_models(table)
            self._kinds = kinds_state(table)
        known = self._current
        if known is not None and known.is_of(table, learned):
            return
        self._made += 1
        self._current = NodeWorth(table, learned, self._made, like=known)

    def _score(self, table: NodeTable, plan: FilterPlan) -> NodeScore:
        return FragmentationScore(self, plan)


class FragmentationScore:
    """The scores for the pods of one plan."""

    def __init__(self, node_worths: NodeWorths, plan: FilterPlan) -> None:
        self._worths = node_worths
        self._plan = plan
        self._bits = _KEY_BITS // max(len(plan.cards), 1)
        self._known: dict[int, int] = {}
        """Scores by cache key."""
        self._known_for: tuple[int, int, tuple[int, int, int]] | None = None
        self._cost: FragmentationCost

    @property
    def version(self) -> int:
        """Changes with the model."""
        return self._worths.current.number

    def of(self, table: NodeTable, row: int, fitting: Sequence[Flags]) -> int:
        """The score of one node on which the pod fits."""
        cost, count = self._up_to_date(), table.count.item(row)
        worths = cost.with_ample_cpu(row)
        if worths is not None:
            now, after = worths
            left = [one for one, suits in zip(after, fitting[0].tolist(), strict=True) if suits]
            return _bounded((now - max(left, default=now)) // UNIT)
        if not 0 < count <= self._bits:
            return self._scores(np.array((row,), np.int64)).item() if count else 0
        key = cost.nodes.numbers.item(row)
        for suits in fitting:
            flags = np.packbits(suits, bitorder="little").tobytes()
            key = key << self._bits | int.from_bytes(flags, "little")
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._scores(np.array((row,), np.int64)).item()
        return known

    def of_many(self, table: NodeTable, batch: NodeBatch) -> Whole:
        """The scores of many nodes."""
        cost = self._up_to_date()
        rows = np.arange(table.height) if isinstance(batch.rows, slice) else batch.rows
        lost, is_done = cost.of_those_with_ample_cpu(batch, rows)
        scores = _within_bounds(lost)
        if is_done.all():
            return scores
        fits, masks = self._masks(table, batch, rows)
        at = (fits & ~is_done).nonzero()[0]
        if at.size:
            rows = rows[at]
            if table.count[rows].max() > self._bits:
                scores[at] = self._scores(rows)
            else:
                keys = cost.nodes.numbers[rows]
                for mask in masks:
                    keys = keys << self._bits | mask[at]
                scores[at] = self._looked_up(keys, rows)
        return scores

    def order(self, table: NodeTable, row: int, cards: list[int]) -> list[int]:
        """The card with the lowest cost first; for several cards, those with the least free."""
        cost = self._up_to_date()
        _, codes = cost.nodes.key_of(row)
        differ = len({codes[at] for at in cards}) > 1
        rates = cost.rates(row) if differ else [0] * len(codes)
        ties = table.card_tie[table.card_slice(row)].tolist()
        return sorted(cards, key=lambda at: (rates[at], ties[at], at))

    def rank(self, table: NodeTable, row: int) -> Rank:
        """The same order."""
        rates = self._up_to_date().rates(row)
        return lambda card: rates[card.index]

    def _up_to_date(self) -> FragmentationCost:
        worths, plan = self._worths.current, self._plan
        worths.nodes.catch_up()
        known_for = (worths.number, worths.nodes.generation, plan.known)
        if known_for != self._known_for:
            self._known_for, self._cost = known_for, FragmentationCost(worths, plan)
            self._known.clear()
        elif len(self._known) > _MOST_KNOWN:
            self._known.clear()
        return self._cost

    def _masks(self, table: NodeTable, batch: NodeBatch, rows: Whole) -> tuple[Flags, list[Whole]]:
        """On which nodes the pod fits by cpu and cards, and by request, bit masks of the cards that
        fit."""
        plan, masks = self._plan, []
        fits = table.present[rows] & (table.count[rows] > 0)
        if plan.cpu_milli:  # A pod without a cpu request fits on an overcommitted node.
            fits &= table.cpu_milli[rows] >= plan.cpu_milli
        owner = batch.owner(table)
        places = np.arange(table.places) if isinstance(batch.places, slice) else batch.places
        within = places - table.first[rows][owner]
        for need, fitting in zip(plan.cards, batch.fitting, strict=True):
            found = fitting.nonzero()[0]
            fits &= np.bincount(owner[found], minlength=len(rows)) >= need.count
            bits = np.ldexp(1.0, np.minimum(within[found], _KEY_BITS))
            masks.append(np.bincount(owner[found], bits, len(rows)).astype(np.int64))
        return fits, masks

    def _looked_up(self, keys: Whole, rows: Whole) -> Whole:
        """The scores of nodes by cache key; missing ones are computed."""
        keys, first, alike = np.unique(keys, return_index=True, return_inverse=True)
        listed, known = keys.tolist(), self._known
        missing = [at for at, key in enumerate(listed) if key not in known]
        if missing:
            found = self._scores(rows[first[missing]])
            known.update(zip([listed[at] for at in missing], found.tolist(), strict=True))
        return np.array([known[key] for key in listed], np.int64)[alike]

    def _scores(self, rows: Whole) -> Whole:
        """The scores of nodes with cards."""
        return _within_bounds(self._cost.of(rows))


def _within_bounds(lost: Whole) -> Whole:
    found: Whole = np.maximum(np.minimum(lost // UNIT, MOST_SCORE), -MOST_SCORE)
    return found


def _bounded(score: int) -> int:
    return max(-MOST_SCORE, min(score, MOST_SCORE))
