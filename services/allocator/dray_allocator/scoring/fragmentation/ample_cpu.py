"""The worth of nodes with ample cpu: enough for all typical pods that fit their cards.

For them, the exact cpu does not matter, and for pods that request one card, the worth of a node is
the sum over its cards. It is computed once per code of a card; scores need no loop over pods.
"""

from collections.abc import Sequence

import numpy as np

from dray_allocator.nodes.columns import Whole
from dray_allocator.scoring.fragmentation.table import NodeStateTable

_Part = tuple[int, int, int]
"""For pods with several cards: whether a card is usable, and its held and idle thousandths."""


class AmpleCpu:
    """Worth of cards by their code, computed on demand."""

    def __init__(self, table: NodeStateTable) -> None:
        self._table = table
        self.is_by_card = not table.several
        """Whether no typical pod requests several cards."""
        self.worth: Whole = np.zeros(table.codes, np.int64)
        """The worth for pods that request one card, minus the cost of idle capacity."""
        self.cpu_milli: Whole = np.full(table.codes, -1, np.int64)
        """The cpu of all copies that fit the card; below 0: not computed."""
        self._cards: dict[int, tuple[int, int]] = {}
        """``worth`` and ``cpu_milli``, for single elements."""
        self._parts: dict[int, list[_Part]] = {}
        """By code, one part per column of pods with several cards."""

    def compute(self, codes: Whole) -> None:
        """Compute the worth for these codes."""
        unknown = codes[self.cpu_milli[codes] < 0]
        if unknown.size:
            codes = np.unique(unknown)
            self.worth[codes], self.cpu_milli[codes] = self._table.by_card(codes)

    def worth_of(self, codes: Sequence[int], cpu_milli: int) -> int | None:
        """The worth of a node with these cards; None if its cpu may not be ample."""
        cards, total = self._cards, 0
        for code in codes:
            worth, needed = cards.get(code) or self._card(code)
            total += worth
            cpu_milli -= needed
        if cpu_milli < 0:
            return None
        return total if self.is_by_card else total + self._for_several(codes)

    def worth_with(self, codes: Sequence[int], code: int, after: int) -> int:
        """The worth of a node with ample cpu after one card changes its code."""
        at = codes.index(code)
        changed = (*codes[:at], after, *codes[at + 1 :])
        return sum([self._card(one)[0] for one in changed]) + self._for_several(changed)

    def gain(self, code: int, after: int) -> int:
        """The change in worth if a card changes its code, for pods that request one card."""
        return self._card(after)[0] - self._card(code)[0]

    def _card(self, code: int) -> tuple[int, int]:
        known = self._cards.get(code)
        if known is None:
            self.compute(np.array((code,), np.int64))
            known = self._cards[code] = self.worth.item(code), self.cpu_milli.item(code)
        return known

    def _for_several(self, codes: Sequence[int]) -> int:
        """The worth for pods that request several cards."""
        total = 0
        for number, (cards, gain, waste) in enumerate(self._table.several):
            parts = [self._part(code, number) for code in codes]
            whole = sum([one[0] for one in parts])
            if whole >= cards:
                held = sum([one[1] for one in parts])
                total += gain * (held * (whole // cards * cards) // whole)
                total += waste * sum([one[2] for one in parts])
        return total

    def _part(self, code: int, number: int) -> _Part:
        known = self._parts.get(code)
        if known is None:
            known = self._parts[code] = self._table.parts_of(code)
        return known[number]
