"""What nodes are worth by what was learned last. Kept per state of a node, until something else
is learned."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from dray.messages.decisions import Learned
from dray_allocator.board.board import Board
from dray_allocator.board.columns import Amounts
from dray_allocator.placement.fragmentation.nodes import Nodes, state_of
from dray_allocator.placement.fragmentation.table import STRIDE, State, Table, uses_cards

_MOST_STATES: Final = 200_000
_TOGETHER: Final = 1024
"""States looked at in one go: what is in between takes memory."""


class Landscape:
    """One board under one version of what was learned."""

    def __init__(
        self, board: Board, learned: Learned, number: int, like: "Landscape | None" = None
    ) -> None:
        self.learned = learned
        self.number = number
        """Differs from that of every other landscape of the pool."""
        self.nodes: Nodes = Nodes(board, learned.classes)
        if like is not None and like.nodes.is_of(board, learned.classes):
            self.nodes = like.nodes
        self._table = Table(len(learned.classes), learned.pods)
        pods = [pod for pod in learned.pods if uses_cards(pod)]
        self._gain: Amounts = np.array([pod.gain for pod in pods], np.float64)
        self._waste: Amounts = np.array([pod.waste for pod in pods], np.float64)
        self._useless = sum(one.waste for one in learned.pods) - sum(one.waste for one in pods)
        """What an idle milli costs for the pods that can use none anywhere."""
        self._worth: dict[State, int] = {}

    def is_of(self, board: Board, learned: Learned) -> bool:
        """Whether it is of this board and of the same that was learned."""
        if self.nodes.board is not board:
            return False
        if self.learned is not learned and self.learned == learned:
            self.learned = learned  # the next look is faster
        return self.learned is learned

    def worth(self, states: Iterable[State]) -> dict[State, int]:
        """The worth of at least these states, in millionths of a thousandth of a card."""
        known = self._worth
        if len(known) > _MOST_STATES:
            known.clear()
        missing = [state for state in dict.fromkeys(states) if state not in known]
        if missing:
            known.update(zip(missing, self.worth_of(missing), strict=True))
        return known

    def worth_of(self, states: Sequence[State]) -> list[int]:
        """The same, computed."""
        found: list[int] = []
        for start in range(0, len(states), _TOGETHER):
            some = states[start : start + _TOGETHER]
            usable, wasted = self._table.features(some)
            worth = usable @ self._gain - wasted @ self._waste - _idle(some) * self._useless
            found += map(int, worth.tolist())
        return found

    def shares(self) -> list[float]:
        """Per pod of ``learned``, the share of the idle milli of all nodes that it could use."""
        nodes = self.nodes
        numbers = Counter(nodes.numbers[list(nodes.board.rows.values())].tolist())
        states = [state_of(*nodes.sight(number)) for number in numbers]
        counts = np.array(list(numbers.values()), np.float64)
        usable, idle = np.zeros(len(self._gain)), 0.0
        for start in range(0, len(states), _TOGETHER):
            some, here = states[start : start + _TOGETHER], counts[start : start + _TOGETHER]
            usable += here @ self._table.features(some)[0]
            idle += float(here @ _idle(some))
        found = iter((usable / max(idle, 1.0)).tolist())
        return [next(found) if uses_cards(pod) else 0.0 for pod in self.learned.pods]


def _idle(states: Sequence[State]) -> Amounts:
    """Milli left of all cards."""
    return np.array([sum(code % STRIDE for code in cards) for _, cards in states], np.float64)
