"""The worth that nodes lose if a pod is placed on them, and which of their cards lose least."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.published_devices import Card
from dray_allocator.nodes.columns import Flags, Places, Whole
from dray_allocator.nodes.plan import FilterPlan
from dray_allocator.nodes.ratings import NodeBatch
from dray_allocator.scoring.fragmentation.node_worth import NodeWorth
from dray_allocator.scoring.fragmentation.nodes import PoolNodes
from dray_allocator.scoring.fragmentation.shapes import CARD, consumed_milli
from dray_allocator.scoring.fragmentation.table import STRIDE

UNIT: Final = 100_000
"""Worth (in millionths of a thousandth of a card) per unit of a score."""


class FragmentationCost:
    """Costs for one ``NodeWorth`` and plan; valid until there are new kinds of cards."""

    def __init__(self, worth: NodeWorth, plan: FilterPlan) -> None:
        self.nodes = worth.nodes
        self._worth = worth
        self._plan = plan
        self._is_single = len(plan.cards) == 1 and plan.cards[0].count == 1
        kinds = [need.matching.nonzero()[0].tolist() for need in plan.cards]
        self._takes = [
            _takes(self.nodes, need.ask, matching_kinds)
            for need, matching_kinds in zip(plan.cards, kinds, strict=True)
        ]
        """By request and class, the thousandths of a card that are consumed."""
        self._gains: dict[int, int] = {}
        """By code of a card: how the worth of its node changes if the pod uses the card. Only for
        nodes with ample cpu."""

    def of(self, rows: Whole) -> Whole:
        """The cost on nodes that have cards, computed with all typical pods."""
        lost = self._by_one if self._is_single else self._by_several
        return np.concatenate([lost(rows[part]) for part in self._worth.batches(rows)])

    def with_ample_cpu(self, row: int) -> tuple[int, list[int]] | None:
        """The worth of a node now, and for each of its cards, after the pod uses it. None if its
        cpu may not be ample, or for several cards."""
        if not self._is_single:
            return None
        ample = self._worth.ample
        cpu_milli, codes = self.nodes.key_of(row)
        now = ample.worth_of(codes, cpu_milli - self._plan.cpu_milli)
        if now is None:
            return None
        if ample.is_by_card:
            gains = self._gains
            for code in codes:
                if code not in gains:
                    gains[code] = ample.gain(code, self._code_after(code))
            return now, [now + gains[code] for code in codes]
        after = {code: ample.worth_with(codes, code, self._code_after(code)) for code in codes}
        return now, [after[code] for code in codes]

    def of_those_with_ample_cpu(self, batch: NodeBatch, rows: Whole) -> tuple[Whole, Flags]:
        """The cost on nodes, and for which of them it was computed.

        Other values are arbitrary, as are those of nodes on which the pod does not fit.
        """
        nodes, ample, table = self.nodes, self._worth.ample, self.nodes.table
        lost = np.zeros(len(rows), np.int64)
        if not self._is_single or not ample.is_by_card:
            return lost, np.zeros(len(rows), np.bool_)
        codes, owner = nodes.codes[batch.places], batch.owner(table)
        if isinstance(batch.places, slice):
            codes, owner = codes[: table.places], owner[: table.places]
        ample.compute(codes)
        enough = np.bincount(owner, ample.cpu_milli[codes], len(rows))
        at = batch.fitting[0].nonzero()[0]
        if at.size:
            first = _first_of_each(owner[at])
            lost[owner[at[first]]] = -np.maximum.reduceat(self._gains_of(codes[at]), first)
        return lost, enough <= nodes.cpu_milli(rows) - self._plan.cpu_milli

    def _gains_of(self, codes: Whole) -> Whole:
        """``_gains`` of many cards, whose codes are computed already."""
        worth = self._worth.ample.worth
        if len(codes) > len(worth):  # Few codes differ: compute each once.
            gains = np.zeros(len(worth), np.int64)
            present = np.bincount(codes).nonzero()[0]
            gains[present] = self._gains_of(present)
            return gains[codes]
        after = self._after(codes)
        self._worth.ample.compute(after)
        return worth[after] - worth[codes]

    def rates(self, row: int) -> list[int]:
        """The ratings of a node's cards; the lowest is best. For a single card, its cost; otherwise
        its free thousandths."""
        worths = self.with_ample_cpu(row)
        if worths is not None:
            return [-worth // UNIT for worth in worths[1]]
        states, (cpu_milli, codes) = self._worth.states, self.nodes.key_of(row)
        if not self._is_single or not codes:
            return [code % STRIDE for code in codes]
        count, left = len(codes), [self._code_after(code) for code in codes]
        parts = states.of(np.array((*codes, *left), np.int64))
        sums = parts[:count].sum(axis=0) + parts[count:] - parts[:count]
        left_milli = max(cpu_milli - self._plan.cpu_milli, 0)
        worth = states.worth(sums, np.full(count, left_milli))
        rates: list[int] = (-worth // UNIT).tolist()
        return rates

    def _by_one(self, rows: Whole) -> Whole:
        """The cost with the best card that fits."""
        nodes, states, now = self.nodes, self._worth.states, len(rows)
        cards, cpu_milli = nodes.cards(rows), nodes.cpu_milli(rows)
        suits = self._plan.cards[0].fitting(nodes.table, cards.places)
        if not suits.any():  # The node that a pod names may have no card that fits.
            return self._by_several(rows)
        # Cards of a node with equal codes have equal results.
        alike = np.unique(cards.owner[suits] * states.codes + cards.codes[suits])
        owner, taken = np.divmod(alike, states.codes)
        parts = states.of(np.concatenate((cards.codes, taken, self._after(taken))))
        here, there = len(cards.codes), len(cards.codes) + len(taken)
        sums = np.add.reduceat(parts[:here], cards.first)
        left = sums[owner] - parts[here:there] + parts[there:]
        left_milli = np.maximum(cpu_milli - self._plan.cpu_milli, 0)[owner]
        worth = states.worth(np.concatenate((sums, left)), np.concatenate((cpu_milli, left_milli)))
        return worth[:now] - np.maximum.reduceat(worth[now:], owner.searchsorted(np.arange(now)))

    def _by_several(self, rows: Whole) -> Whole:
        """The cost with the cards that have the least free, request by request."""
        nodes, states = self.nodes, self._worth.states
        cards, cpu_milli = nodes.cards(rows), nodes.cpu_milli(rows)
        codes = cards.codes.copy()
        for need, takes in zip(self._plan.cards, self._takes, strict=True):
            at = need.fitting(nodes.table, cards.places).nonzero()[0]
            at = at[np.lexsort((codes[at] % STRIDE, cards.owner[at]))]
            owner = cards.owner[at]
            at = at[np.arange(len(at)) - owner.searchsorted(owner) < need.count]
            codes[at] = _after(codes[at], takes)
        left_milli = np.maximum(cpu_milli - self._plan.cpu_milli, 0)
        before = states.worth(states.sums(cards.codes, cards.first), cpu_milli)
        return before - states.worth(states.sums(codes, cards.first), left_milli)

    def _after(self, codes: Whole) -> Whole:
        return _after(codes, self._takes[0])

    def _code_after(self, code: int) -> int:
        return code - min(code % STRIDE, self._takes[0].item(code // STRIDE))


def _takes(nodes: PoolNodes, ask: DeviceRequirements, kinds: Iterable[int]) -> Whole:
    takes = [CARD] * len(nodes.classes)
    seen: dict[int, int] = {}
    for kind in kinds:
        number = nodes.class_number(kind)
        card: Card = nodes.table.card_kinds.example(kind)
        if number >= 0:
            seen[number] = max(seen.get(number, 0), consumed_milli(ask, card))
    for number, milli in seen.items():
        takes[number] = milli
    return np.array(takes, np.int64)


def _after(codes: Whole, takes: Whole) -> Whole:
    """The codes of cards after use; ``takes``: consumed thousandths by class."""
    return codes - np.minimum(codes % STRIDE, takes[codes // STRIDE])


def _first_of_each(owners: Places) -> Places:
    """Positions at which runs of equal numbers begin."""
    is_first = np.ones(len(owners), np.bool_)
    np.not_equal(owners[1:], owners[:-1], out=is_first[1:])
    return is_first.nonzero()[0]
