"""What nodes lose in worth when a pod of one plan is placed there, and with which cards least."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.node_devices import Card
from dray_allocator.nodes.columns import Flags, Places, Whole
from dray_allocator.nodes.plan import FilterPlan
from dray_allocator.nodes.ratings import Look
from dray_allocator.scoring.fragmentation.node_worth import NodeWorth
from dray_allocator.scoring.fragmentation.nodes import Nodes
from dray_allocator.scoring.fragmentation.shapes import CARD, taken_of
from dray_allocator.scoring.fragmentation.table import STRIDE

UNIT: Final = 100_000
"""Scores are in tenths of a thousandth of a card; worths in millionths of one."""


class Losses:
    """Those by one landscape, as long as its nodes and the plan know the same kinds of cards."""

    def __init__(self, landscape: NodeWorth, plan: FilterPlan) -> None:
        self.nodes = landscape.nodes
        self._landscape = landscape
        self._plan = plan
        self._is_single = len(plan.cards) == 1 and plan.cards[0].count == 1
        kinds = [need.suits.nonzero()[0].tolist() for need in plan.cards]
        self._takes = [
            _takes(self.nodes, need.ask, suited)
            for need, suited in zip(plan.cards, kinds, strict=True)
        ]
        """Per request and class, what it takes of a card."""
        self._gains: dict[int, int] = {}
        """By code of a card, what a node with enough cpu gains in worth when it is taken of."""

    def of(self, rows: Whole) -> Whole:
        """What nodes with cards lose, computed pod by pod."""
        lost = self._by_one if self._is_single else self._by_several
        return np.concatenate([lost(rows[part]) for part in self._landscape.some(rows)])

    def with_ample_cpu(self, row: int) -> tuple[int, list[int]] | None:
        """What a node is worth now, and once each of its cards was taken of. None where its cpu may
        be too little for that not to matter, or where several cards are taken."""
        if not self._is_single:
            return None
        ample = self._landscape.ample
        cpu_milli, codes = self.nodes.sight(row)
        now = ample.worth_of(codes, cpu_milli - self._plan.cpu_milli)
        if now is None:
            return None
        if ample.is_by_card:
            gains = self._gains
            for code in codes:
                if code not in gains:
                    gains[code] = ample.gain(code, self._less(code))
            return now, [now + gains[code] for code in codes]
        after = {code: ample.worth_with(codes, code, self._less(code)) for code in codes}
        return now, [after[code] for code in codes]

    def of_those_with_ample_cpu(self, look: Look, rows: Whole) -> tuple[Whole, Flags]:
        """What nodes lose, and for which of them that is found; the values of others, or of those
        on which the pod does not fit, means nothing."""
        nodes, ample, table = self.nodes, self._landscape.ample, self.nodes.table
        lost = np.zeros(len(rows), np.int64)
        if not self._is_single or not ample.is_by_card:
            return lost, np.zeros(len(rows), np.bool_)
        codes, owner = nodes.codes[look.places], look.owner(table)
        if isinstance(look.places, slice):
            codes, owner = codes[: table.places], owner[: table.places]
        ample.know(codes)
        enough = np.bincount(owner, ample.cpu_milli[codes], len(rows))
        at = look.suiting[0].nonzero()[0]
        if at.size:
            after = self._after(codes[at])
            ample.know(after)
            first = _first_of_each(owner[at])
            gained = ample.worth[after] - ample.worth[codes[at]]
            lost[owner[at[first]]] = -np.maximum.reduceat(gained, first)
        return lost, enough <= nodes.cpu_milli(rows) - self._plan.cpu_milli

    def rates(self, row: int) -> list[int]:
        """Per card of a node, for a single one what is left when it is taken of, else what is left
        of it; the lowest is best."""
        worths = self.with_ample_cpu(row)
        if worths is not None:
            return [-worth // UNIT for worth in worths[1]]
        states, (cpu_milli, codes) = self._landscape.states, self.nodes.sight(row)
        if not self._is_single or not codes:
            return [code % STRIDE for code in codes]
        count, left = len(codes), [self._less(code) for code in codes]
        parts = states.of(np.array((*codes, *left), np.int64))
        sums = parts[:count].sum(axis=0) + parts[count:] - parts[:count]
        left_milli = max(cpu_milli - self._plan.cpu_milli, 0)
        worth = states.worth(sums, np.full(count, left_milli))
        rates: list[int] = (-worth // UNIT).tolist()
        return rates

    def _by_one(self, rows: Whole) -> Whole:
        """Where the best of the cards that suit is taken of."""
        nodes, states, now = self.nodes, self._landscape.states, len(rows)
        cards, cpu_milli = nodes.cards(rows), nodes.cpu_milli(rows)
        suits = self._plan.cards[0].suiting(nodes.table, cards.places)
        if not suits.any():  # a node that a pod names may have no card for it
            return self._by_several(rows)
        # Devices of a node with equal codes leave the same remainder.
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
        """Where the cards with the least left are taken of, for one request after the other."""
        nodes, states = self.nodes, self._landscape.states
        cards, cpu_milli = nodes.cards(rows), nodes.cpu_milli(rows)
        codes = cards.codes.copy()
        for need, takes in zip(self._plan.cards, self._takes, strict=True):
            at = need.suiting(nodes.table, cards.places).nonzero()[0]
            at = at[np.lexsort((codes[at] % STRIDE, cards.owner[at]))]
            owner = cards.owner[at]
            at = at[np.arange(len(at)) - owner.searchsorted(owner) < need.count]
            codes[at] = _after(codes[at], takes)
        left_milli = np.maximum(cpu_milli - self._plan.cpu_milli, 0)
        before = states.worth(states.sums(cards.codes, cards.first), cpu_milli)
        return before - states.worth(states.sums(codes, cards.first), left_milli)

    def _after(self, codes: Whole) -> Whole:
        return _after(codes, self._takes[0])

    def _less(self, code: int) -> int:
        return code - min(code % STRIDE, self._takes[0].item(code // STRIDE))


def _takes(nodes: Nodes, ask: DeviceRequirements, kinds: Iterable[int]) -> Whole:
    takes = [CARD] * len(nodes.classes)
    seen: dict[int, int] = {}
    for kind in kinds:
        number = nodes.class_number(kind)
        card: Card = nodes.table.card_kinds.example(kind)
        if number >= 0:
            seen[number] = max(seen.get(number, 0), taken_of(ask, card))
    for number, milli in seen.items():
        takes[number] = milli
    return np.array(takes, np.int64)


def _after(codes: Whole, takes: Whole) -> Whole:
    """The codes of cards once they were taken of; ``takes``: per class."""
    return codes - np.minimum(codes % STRIDE, takes[codes // STRIDE])


def _first_of_each(owners: Places) -> Places:
    """Where each of some stretches of equal numbers begins."""
    is_first = np.ones(len(owners), np.bool_)
    np.not_equal(owners[1:], owners[:-1], out=is_first[1:])
    return is_first.nonzero()[0]
