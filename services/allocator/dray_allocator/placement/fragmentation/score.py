"""How pods of one signature rate nodes and cards: by what placing them there costs all others.

The score of a node is its worth before less its worth after, with the best card for the pod: the
lowest is best. Requests of several cards, or several requests, are rated by taking the card with
the least left each time; a search may find other ones.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from dray.messages.decisions import Learned
from dray_allocator.board.board import Board
from dray_allocator.board.columns import Flags, Whole
from dray_allocator.board.plan import Plan
from dray_allocator.fit.devices import Card
from dray_allocator.fit.search import Ask
from dray_allocator.placement.fragmentation.landscape import Landscape
from dray_allocator.placement.fragmentation.nodes import (
    Codes,
    Nodes,
    state_of,
    tell_models_apart,
)
from dray_allocator.placement.fragmentation.shapes import CARD, taken_of
from dray_allocator.placement.fragmentation.table import STRIDE, State
from dray_allocator.placement.scores import MOST_SCORE, Look, NodeScore, Rank, Scoring

UNIT: Final = 100_000
"""Scores are in tenths of a thousandth of a card; worths in millionths of one."""
_MOST_KNOWN: Final = 50_000

Key = tuple[int, ...]
"""All that a score reads: the number of a node as it looks, and per request which of the node's
cards suit it, as bits."""
_MOST_BITS: Final = 52
"""Bits that a float's sums hold exactly."""


class Landscapes:
    """A pool's landscape under what it decides by now; that of before, where it was another one."""

    def __init__(self) -> None:
        self._current: Landscape | None = None
        self._made = 0
        self._kinds = (-1, 0)
        self.scoring = Scoring(self, self._score)

    @property
    def current(self) -> Landscape:
        """The one set last.

        Raises:
            RuntimeError: none was; whoever scores sets one first.
        """
        if self._current is None:
            raise RuntimeError("no landscape was set")
        return self._current

    def set(self, board: Board, learned: Learned) -> None:
        """Decide by what was learned, on this board. Comes before an index is asked for: kinds of
        cards may have other numbers afterwards."""
        kinds = (board.numbering, board.card_kinds.count)
        if kinds != self._kinds:
            tell_models_apart(board)
            self._kinds = (board.numbering, board.card_kinds.count)
        known = self._current
        if known is not None and known.is_of(board, learned):
            return
        self._made += 1
        self._current = Landscape(board, learned, self._made, like=known)

    def _score(self, board: Board, plan: Plan) -> NodeScore:
        return FragmentationScore(self, plan)


class FragmentationScore:
    """The scores for the pods of one plan."""

    def __init__(self, landscapes: Landscapes, plan: Plan) -> None:
        self._landscapes = landscapes
        self._plan = plan
        self._takes: list[list[int]] = []
        """Per request and class, what it takes of a card."""
        self._known: dict[Key, int] = {}
        self._known_for: tuple[int, int, tuple[int, int, int]] = (0, 0, (-1, 0, 0))

    @property
    def version(self) -> int:
        """Another one for everything that was learned."""
        return self._landscapes.current.number

    def of(self, board: Board, row: int, suiting: Sequence[Flags]) -> int:
        """The score of one node."""
        landscape = self._landscape()
        key = (landscape.nodes.numbers.item(row), *(_bits(found.tolist()) for found in suiting))
        if key not in self._known:
            self._rate(landscape, (key,))
        return self._known[key]

    def of_many(self, board: Board, look: Look) -> Whole:
        """The scores of many nodes; 0 for those on which the pod does not fit."""
        landscape, known = self._landscape(), self._known
        numbers = landscape.nodes.numbers[look.rows]
        if isinstance(look.rows, slice):
            numbers = numbers[: board.height]
        fits, masks = self._masks(board, look, len(numbers))
        rows = fits.nonzero()[0]
        keys: list[Key] = list(
            zip(numbers[rows].tolist(), *(mask[rows].tolist() for mask in masks), strict=True)
        )
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        if missing:
            self._rate(landscape, missing)
        scores = np.zeros(len(numbers), np.int64)
        scores[rows] = [known[key] for key in keys]
        return scores

    def _masks(self, board: Board, look: Look, count: int) -> tuple[Flags, list[Whole]]:
        """On which nodes the pod fits as far as cpu and cards go, and per request, as bits, which
        of a node's cards suit it."""
        plan, masks = self._plan, []
        fits = board.present[look.rows] & (board.cpu_milli[look.rows] >= plan.cpu_milli)
        owner = look.owner(board)
        places = np.arange(board.places) if isinstance(look.places, slice) else look.places
        within = places - board.first[look.rows][owner]
        for need, suiting in zip(plan.cards, look.suiting, strict=True):
            found = suiting.nonzero()[0]
            fits &= np.bincount(owner[found], minlength=count) >= need.count
            found = found[within[found] < _MOST_BITS]
            bits = np.left_shift(1, within[found]).astype(np.float64)
            masks.append(np.bincount(owner[found], bits, count).astype(np.int64))
        return fits, masks

    def order(self, board: Board, row: int, cards: list[int]) -> list[int]:
        """The card that leaves most first; of several cards those with the least left."""
        rates = self._rates(row)
        ties = board.card_tie[board.stretch(row)].tolist()
        return sorted(cards, key=lambda at: (rates[at], ties[at], at))

    def rank(self, board: Board, row: int) -> Rank:
        """The same order."""
        rates = self._rates(row)
        return lambda ask, card: rates[card.index]

    def _landscape(self) -> Landscape:
        landscape, plan = self._landscapes.current, self._plan
        landscape.nodes.catch_up()
        known_for = (landscape.number, landscape.nodes.generation, plan.known)
        if known_for != self._known_for or len(self._known) > _MOST_KNOWN:
            self._known.clear()
        if known_for != self._known_for:
            self._known_for = known_for
            kinds = [need.suits.nonzero()[0].tolist() for need in plan.cards]
            self._takes = [
                _takes(landscape.nodes, need.ask, suited)
                for need, suited in zip(plan.cards, kinds, strict=True)
            ]
        return landscape

    def _rate(self, landscape: Landscape, keys: Sequence[Key]) -> None:
        """Score these as well; worths are looked up for all of them together."""
        sights = [landscape.nodes.sight(key[0]) for key in keys]
        befores = [state_of(*sight) for sight in sights]
        afters = [
            self._afters(cpu_milli, codes, before, key[1:])
            for (cpu_milli, codes), before, key in zip(sights, befores, keys, strict=True)
        ]
        worth = landscape.worth([*befores, *(state for after in afters for state in after)])
        for key, before, after in zip(keys, befores, afters, strict=True):
            score = (worth[before] - max([worth[state] for state in after])) // UNIT
            self._known[key] = max(-MOST_SCORE, min(score, MOST_SCORE))

    def _afters(
        self, cpu_milli: int, codes: Codes, before: State, masks: tuple[int, ...]
    ) -> list[State]:
        """The states that a node can be in once the pod is there."""
        cpu_milli = max(0, cpu_milli - self._plan.cpu_milli)
        if self._is_single:
            mask, takes = masks[0], self._takes[0]
            suited = {code for at, code in enumerate(codes) if mask >> at & 1}
            after = [_with(cpu_milli, before[1], code, takes) for code in sorted(suited)]
            return after or [(cpu_milli, before[1])]  # a node that a pod names may have no card
        return [self._packed(cpu_milli, list(codes), masks)]

    @property
    def _is_single(self) -> bool:
        return len(self._plan.cards) == 1 and self._plan.cards[0].count == 1

    def _packed(self, cpu_milli: int, codes: list[int], masks: tuple[int, ...]) -> State:
        for need, takes, mask in zip(self._plan.cards, self._takes, masks, strict=True):
            suited = [at for at in range(len(codes)) if mask >> at & 1]
            for at in sorted(suited, key=lambda at: (codes[at] % STRIDE, at))[: need.count]:
                codes[at] = _after(codes[at], takes)
        return state_of(cpu_milli, codes)

    def _rates(self, row: int) -> list[int]:
        """Per card of a node, the lowest is best."""
        landscape = self._landscape()
        cpu_milli, codes = landscape.nodes.sight(landscape.nodes.numbers.item(row))
        if not self._is_single:
            return [code % STRIDE for code in codes]
        before = state_of(cpu_milli, codes)
        cpu_milli = max(0, cpu_milli - self._plan.cpu_milli)
        afters = [_with(cpu_milli, before[1], code, self._takes[0]) for code in codes]
        worth = landscape.worth(afters)
        return [-worth[state] // UNIT for state in afters]


def _takes(nodes: Nodes, ask: Ask, kinds: Iterable[int]) -> list[int]:
    takes = [CARD] * len(nodes.classes)
    seen: dict[int, int] = {}
    for kind in kinds:
        number = nodes.class_number(kind)
        card: Card = nodes.board.card_kinds.example(kind)
        if number >= 0:
            seen[number] = max(seen.get(number, 0), taken_of(ask, card))
    for number, milli in seen.items():
        takes[number] = milli
    return takes


def _with(cpu_milli: int, cards: tuple[int, ...], code: int, takes: Sequence[int]) -> State:
    """A node's state after a card with this code was taken of."""
    if not code % STRIDE:
        return cpu_milli, cards
    left = list(cards)
    left.remove(code)
    after = _after(code, takes)
    if after % STRIDE:
        insort(left, after)
    return cpu_milli, tuple(left)


def _after(code: int, takes: Sequence[int]) -> int:
    return code - min(code % STRIDE, takes[code // STRIDE])


def _bits(suiting: list[bool]) -> int:
    return sum(1 << at for at, suits in enumerate(suiting[:_MOST_BITS]) if suits)
