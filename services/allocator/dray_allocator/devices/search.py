"""Depth-first search for devices, by claim, request and device, in upstream's order.

Upstream recurses. Here, every open choice is a generator on an explicit stack, because Python
limits the recursion depth: a choice yields the next position, receives its result, and deallocates
its device before it tries the next one.
"""

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import NamedTuple

from dray.api.claims import Claim
from dray.api.names import MAX_GPUS_PER_CLAIM
from dray_allocator.devices.allocation_state import AllocationState
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.errors import AllocationError, SearchLimitError
from dray_allocator.devices.pools import ResourcePool
from dray_allocator.devices.requirements import Alternative, RequestAlternatives, Selects
from dray_allocator.devices.versions import SchedulerVersion


class SearchEnd(Enum):
    """Why a choice failed."""

    NO_FIT = "no fit"
    TOO_MANY = "too many"
    """A claim would have more devices than the API allows. Other devices do not help, only an
    alternative with fewer devices."""


class SearchPosition(NamedTuple):
    """The device to allocate next, by indexes."""

    claim: int = 0
    request: int = 0
    alternative: int | None = None
    """None before one is chosen."""
    device: int = 0
    start: int = 0
    """The first candidate to try: a request does not try the same set in another order."""


Choice = Generator[SearchPosition, SearchEnd, SearchEnd]


class Search:
    """One search for devices for all claims.

    ``candidates``: the devices that a request tries, in order.
    """

    def __init__(
        self,
        claims: Sequence[Claim],
        plans: Sequence[Sequence[RequestAlternatives]],
        candidates: Callable[[Alternative], Sequence[Candidate]],
        state: AllocationState,
        selects: Selects,
        version: SchedulerVersion,
        budget: SearchBudget,
        *,
        invalid: ResourcePool | None = None,
    ) -> None:
        self._claims = claims
        self._plans = plans
        self._candidates = candidates
        self._state = state
        self._selects = selects
        self._version = version
        self._invalid = invalid
        self._budget = budget
        self.chosen: dict[tuple[int, int], int] = {}
        """The index of the chosen alternative, by claim and request, for requests with several."""

    def run(self) -> bool:
        """Whether there is a solution; the state then holds it.

        Raises:
            AllocationError: an error of the attempt, or every alternative of the first claim has
                too many devices (which only happens with `all_forgets_alternative`).
            SearchLimitError: the budget is spent.
        """
        if not self._claims:
            return True
        stack = [self._choice(SearchPosition())]
        ending: SearchEnd | None = None
        while stack:
            try:
                position = next(stack[-1]) if ending is None else stack[-1].send(ending)
            except StopIteration as end:
                stack.pop()
                ending = end.value
                continue
            if position.claim == len(self._claims):
                return True
            stack.append(self._choice(position))
            ending = None
        if ending is SearchEnd.TOO_MANY:
            raise AllocationError(
                f"claim {self._claims[0]}: allocation max size exceeded: each alternative comes to "
                f"more than {MAX_GPUS_PER_CLAIM} devices"
            )
        return False

    def _choice(self, position: SearchPosition) -> Choice:
        plan = self._plans[position.claim]
        if position.request == len(plan):
            return self._next_claim(position)
        wanted = plan[position.request]
        if position.alternative is None and wanted.is_choice:
            return self._alternatives(position, wanted)
        alternative = wanted.alternatives[position.alternative or 0]
        if alternative.all_devices is not None and not alternative.all_devices:
            return _refused(SearchEnd.NO_FIT)
        if position.device >= alternative.count:
            return self._next_request(position)
        missing = alternative.count - position.device
        if len(self._state.taken[position.claim]) + missing > MAX_GPUS_PER_CLAIM:
            return _refused(SearchEnd.TOO_MANY)
        if alternative.all_devices is not None:
            return self._this_device(
                position, alternative, alternative.all_devices[position.device]
            )
        return self._devices(position, alternative)

    def _next_claim(self, position: SearchPosition) -> Choice:
        yield SearchPosition(position.claim + 1)
        # Too many devices for the next claim does not mean too many for this one.
        return SearchEnd.NO_FIT

    def _next_request(self, position: SearchPosition) -> Choice:
        return (yield SearchPosition(position.claim, position.request + 1))

    def _alternatives(self, position: SearchPosition, wanted: RequestAlternatives) -> Choice:
        """Try the alternatives in order."""
        ending = SearchEnd.TOO_MANY
        for index in range(len(wanted.alternatives)):
            self.chosen[position.claim, position.request] = index
            if (yield SearchPosition(position.claim, position.request, index)) is SearchEnd.NO_FIT:
                ending = SearchEnd.NO_FIT
        return ending

    def _this_device(
        self, position: SearchPosition, alternative: Alternative, device: Candidate
    ) -> Choice:
        """Mode All: allocate this device, or the request fails."""
        self._count_try()
        undo = self._state.take(position.claim, alternative, device, must=True)
        if undo is None:
            return SearchEnd.NO_FIT
        forgets = self._version.all_forgets_alternative and position.alternative is not None
        chosen = 0 if forgets else position.alternative
        ending = yield SearchPosition(position.claim, position.request, chosen, position.device + 1)
        undo()
        return ending

    def _devices(self, position: SearchPosition, alternative: Alternative) -> Choice:
        claim, ask = self._claims[position.claim], alternative.ask
        candidates = self._candidates(alternative)
        for index in range(position.start, len(candidates)):
            self._count_try()
            candidate = candidates[index]
            if not self._state.is_free(position.claim, ask, candidate):
                continue
            if not self._selects(claim, ask, alternative.of_class, candidate):
                continue
            if not self._state.has_room(ask, candidate):
                continue
            undo = self._state.take(position.claim, alternative, candidate, must=False)
            if undo is None:
                continue
            start = 0 if self._version.repeats_within_request else index + 1
            ending = yield SearchPosition(
                position.claim, position.request, position.alternative, position.device + 1, start
            )
            undo()
            if ending is SearchEnd.TOO_MANY:
                return ending
        if self._invalid is not None and self._version.stops_at_invalid_pools:
            raise AllocationError(f"pool {self._invalid} is invalid: {self._invalid.invalid}")
        return SearchEnd.NO_FIT

    def _count_try(self) -> None:
        if not self._budget.take():
            raise SearchLimitError(
                f"gave up after looking at {self._budget.limit} devices without an answer: the "
                "claims leave too many combinations open; ask for fewer devices at a time, or "
                "narrow the selectors"
            )


def _refused(ending: SearchEnd) -> Choice:
    return ending
    yield
