"""The nodes of a pod one by one, the best first, until the tries for it are used up."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from dray.domain.devices import DeviceClass
from dray.domain.dra.asks import Ask, Claim
from dray.domain.dra.nodes import Node
from dray.domain.dra.results import AllocationResult
from dray_allocator.domain import Domain
from dray_allocator.lane.asking import claim_of, rules_of
from dray_allocator.lane.seen import Seen, seen_by
from dray_allocator.placement.ask import Wanted
from dray_allocator.placement.choose import candidates
from dray_allocator.placement.on_one_node import takes
from dray_allocator.placement.policies import by_load
from dray_allocator.state import AllocatorState
from dray_allocator.structured.allocate import Problem, allocate
from dray_allocator.structured.candidates import Candidate
from dray_allocator.structured.errors import AllocationError, SearchLimitError
from dray_allocator.structured.rules import Rules
from dray_allocator.structured.search import Looks
from dray_allocator.structured.selectors import Selectors

NODE_LOOKS = 5_000
"""Devices looked at on one node before it counts as unfit."""
POD_LOOKS = 20_000
"""Devices looked at, and at least seen, for one pod on all nodes together."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one node."""

    node: str
    devices: int
    """That it sees."""
    results: tuple[AllocationResult, ...] | None = None
    """One for each claim that is asked for; None: they don't fit."""
    error: str = ""
    """Why it can't be decided there."""
    gave_up: bool = False
    """Whether the search there took too long."""


@dataclass(slots=True)
class Trying:
    """The tries of one pod."""

    state: AllocatorState
    domain: Domain
    wanted: Wanted
    left: int = POD_LOOKS
    untried: int = 0
    """Nodes for which no tries were left."""
    rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        facts = self.state.facts
        self.rules = rules_of(
            self.wanted.pod,
            list_attributes=facts.list_attributes,
            binding_conditions=facts.binding_conditions,
        )

    def outcomes(self) -> Iterator[Outcome]:
        """Of every node that takes the pod, its devices aside."""
        state, is_filling = self.state, self.is_filling
        for node in self._nodes_in_order():
            if not takes(self.state, self.wanted, node):
                continue
            if self.left <= 0:
                self.untried += 1
                continue
            yield self._outcome(node, seen_by(state, node, fills=is_filling))

    def _nodes_in_order(self) -> list[str]:
        """By what is in use of their cards; what was learned of pods knows no other devices."""
        score, board = by_load(self.wanted.placement), self.state.boards.of(self.domain.name)

        def key(node: str) -> tuple[int, int, str]:
            row = board.rows[node]
            return score.of(board, row, ()), board.tie.item(row), board.uid(row)

        return sorted(self._nodes(), key=key)

    def _nodes(self) -> list[str]:
        """Where the board has looked already, only nodes with something that it does not read."""
        nodes = candidates(self.state, self.domain, self.wanted)
        odd = self.state.fleet.nodes_that_say_more()
        if self.wanted.in_full or "" in odd:
            return nodes
        return [node for node in nodes if node in odd]

    @property
    def is_filling(self) -> bool:
        """Whether the placement would rather fill cards that are in use already."""
        return by_load(self.wanted.placement).card_fills

    def _outcome(self, name: str, seen: Seen) -> Outcome:
        node = node_of(self.state, name)
        claims = tuple(claim_of(claim) for claim in self.wanted.claims)
        classes = tuple(self.state.facts.classes.values())
        problem = Problem(node, seen.slices, classes, seen.holdings, claims)
        most = min(NODE_LOOKS, self.left)
        looks = Looks(most)
        try:
            found = allocate(
                problem, self.rules, looks=looks, selectors=Forgiving(self.state, node, self.rules)
            )
        except SearchLimitError:
            return Outcome(name, seen.devices, gave_up=True)
        except AllocationError as error:
            return Outcome(name, seen.devices, error=str(error))
        finally:
            self.left -= max(most - looks.left, seen.devices, 1)
        return Outcome(name, seen.devices, None if found is None else tuple(found))


def node_of(state: AllocatorState, name: str) -> Node:
    """The node as slices see it."""
    return Node(name, state.facts.nodes[name].node.labels)


class Forgiving(Selectors):
    """A device on which a selector can't be evaluated does not match, and others may. What the
    board knows of a device is not evaluated again."""

    def __init__(self, state: AllocatorState, node: Node, rules: Rules) -> None:
        super().__init__(node, rules)
        self._state = state

    def _verdict(self, claim: Claim, ask: Ask, of_class: DeviceClass, candidate: Candidate) -> bool:
        card = self._state.fleet.card(candidate.id)
        if card is not None and not card.fault:
            return self._state.selectors.matches((*of_class.selectors, *ask.selectors), card)
        try:
            return super()._verdict(claim, ask, of_class, candidate)
        except AllocationError:
            return False
