"""Breadth-first search of all states, so that a violation has a shortest path."""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from tools.model_checker.bounds import Bound
from tools.model_checker.invariants import ModelInvariants
from tools.model_checker.state import Action, ModelBus, Next, State, exchanged
from tools.model_checker.trace import trace_lines
from tools.model_checker.world import ModelWorld


@dataclass(slots=True)
class SearchOutcome:
    """The result of a search."""

    bound: Bound
    states: int = 0
    steps: int = 0
    ends: int = 0
    """Final states."""
    depth: int = 0
    """The length of the longest shortest path."""
    cut: int = 0
    """States in which a claim would exceed the bound's attempts."""
    complete: bool = True
    """False: the search ended at its limit of states."""
    violation: str = ""
    trace: list[str] = field(default_factory=list)
    local: tuple[int, int] = (0, 0)
    """Visited states of the allocator's core, and computed transitions."""

    def report(self) -> str:
        """A readable report."""
        size = (
            f"bound {self.bound.name}: {self.states} states, {self.steps} steps, {self.ends} ends, "
            f"{self.cut} cut off, "
            f"{self.depth} deep; {self.local[0]} states of a replica by {self.local[1]} transitions"
        )
        if not self.complete and not self.violation:
            return f"{size}\nNOT COMPLETE"
        return "\n".join([size, self.violation or "no violation", *self.trace])


def explore(
    bound: Bound, bus: ModelBus | None = None, *, most_states: int = 5_000_000
) -> SearchOutcome:
    """Visit every state of the bound, or stop at the first violation."""
    return _Search(bound, bus or ModelBus(), most_states).run()


class _Search:
    def __init__(self, bound: Bound, bus: ModelBus, most_states: int) -> None:
        self._world = ModelWorld(bound, bus)
        self._invariants = ModelInvariants(self._world)
        self._most_states = most_states
        self._outcome = SearchOutcome(bound)
        self._visited: dict[State, tuple[State | None, Action, int]] = {}

    def run(self) -> SearchOutcome:
        outcome = self._outcome
        first = exchanged(self._world.first())
        self._visited[first] = (None, Action("begin"), 0)
        queue = deque([first])
        while queue and not outcome.violation:
            state = queue.popleft()
            if len(self._visited) > self._most_states:
                outcome.complete = False
                break
            self._visit(state, queue)
        outcome.states = len(self._visited)
        outcome.local = self._world.replicas.size
        return outcome

    def _visit(self, state: State, queue: deque[State]) -> None:
        outcome = self._outcome
        depth = self._visited[state][2]
        outcome.depth = max(outcome.depth, depth)
        steps = self._world.next(state)
        outcome.steps += len(steps)
        outcome.cut += any(step.action.kind == "cut" for step in steps)
        for step in steps:
            after = exchanged(step.state)
            if after not in self._visited:
                self._visited[after] = (state, step.action, depth + 1)
                queue.append(after)
            if problem := self._invariants.step(state, step):
                self._fail(state, step, problem)
                return
        if all(step.fault for step in steps):
            outcome.ends += 1
            if problem := self._invariants.end(state):
                self._fail(state, None, problem)

    def _fail(self, state: State, last: Next | None, problem: str) -> None:
        self._outcome.violation = problem
        steps = [] if last is None else [(last.action, last.state)]
        self._outcome.trace = [*trace_lines(self._world, [*self._path(state), *steps])]

    def _path(self, state: State) -> list[tuple[Action, State]]:
        """The steps to a state, each with the state after it."""
        states = [state]
        while (before := self._visited[states[-1]][0]) is not None:
            states.append(before)
        states.reverse()
        return [
            next(
                (step.action, step.state)
                for step in self._world.next(before)
                if exchanged(step.state) == after
            )
            for before, after in pairwise(states)
        ]
