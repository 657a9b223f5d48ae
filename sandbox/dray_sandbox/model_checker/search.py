"""Breadth first through all states: what is found first is found on a shortest way."""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from dray_sandbox.model_checker.bound import Bound
from dray_sandbox.model_checker.invariants import ModelInvariants
from dray_sandbox.model_checker.state import Action, ModelBus, Next, State, exchanged
from dray_sandbox.model_checker.words import story
from dray_sandbox.model_checker.world import ModelWorld


@dataclass(slots=True)
class SearchOutcome:
    """What a search found."""

    bound: Bound
    states: int = 0
    steps: int = 0
    ends: int = 0
    """States in which nothing more happens."""
    depth: int = 0
    """Steps of the longest shortest way."""
    cut: int = 0
    """States in which a claim would be decided more often than the bound looks at."""
    complete: bool = True
    """False: it ended at its limit."""
    violation: str = ""
    trace: list[str] = field(default_factory=list)
    local: tuple[int, int] = (0, 0)
    """States of the allocator's core that were reached, and transitions that were computed."""

    def report(self) -> str:
        """For people."""
        size = (
            f"bound {self.bound.name}: {self.states} states, {self.steps} steps, {self.ends} ends, "
            f"{self.cut} cut off, "
            f"{self.depth} deep; {self.local[0]} states of a replica by {self.local[1]} transitions"
        )
        if not self.complete and not self.violation:
            return f"{size}\nNOT COMPLETE"
        return "\n".join([size, self.violation or "nothing is wrong", *self.trace])


def explore(
    bound: Bound, bus: ModelBus | None = None, *, most_states: int = 5_000_000
) -> SearchOutcome:
    """Visit every state of the bound, until something is wrong."""
    return _Search(bound, bus or ModelBus(), most_states).run()


class _Search:
    def __init__(self, bound: Bound, bus: ModelBus, most_states: int) -> None:
        self._world = ModelWorld(bound, bus)
        self._judge = ModelInvariants(self._world)
        self._most_states = most_states
        self._outcome = SearchOutcome(bound)
        self._came: dict[State, tuple[State | None, Action, int]] = {}

    def run(self) -> SearchOutcome:
        outcome = self._outcome
        first = exchanged(self._world.first())
        self._came[first] = (None, Action("begin"), 0)
        queue = deque([first])
        while queue and not outcome.violation:
            state = queue.popleft()
            if len(self._came) > self._most_states:
                outcome.complete = False
                break
            self._visit(state, queue)
        outcome.states = len(self._came)
        outcome.local = self._world.replicas.size
        return outcome

    def _visit(self, state: State, queue: deque[State]) -> None:
        outcome = self._outcome
        depth = self._came[state][2]
        outcome.depth = max(outcome.depth, depth)
        steps = self._world.next(state)
        outcome.steps += len(steps)
        outcome.cut += any(step.action.kind == "cut" for step in steps)
        for step in steps:
            after = exchanged(step.state)
            if after not in self._came:
                self._came[after] = (state, step.action, depth + 1)
                queue.append(after)
            if problem := self._judge.step(state, step):
                self._convict(state, step, problem)
                return
        if all(step.fault for step in steps):
            outcome.ends += 1
            if problem := self._judge.end(state):
                self._convict(state, None, problem)

    def _convict(self, state: State, last: Next | None, problem: str) -> None:
        self._outcome.violation = problem
        steps = [] if last is None else [(last.action, last.state)]
        self._outcome.trace = [*story(self._world, [*self._way(state), *steps])]

    def _way(self, state: State) -> list[tuple[Action, State]]:
        """The steps to a state, each with the state as it was made by it."""
        states = [state]
        while (before := self._came[states[-1]][0]) is not None:
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
