"""The first complete solution, depth first: claims, their requests and devices in order.

Kubernetes searches by recursion. Here each open choice is a generator on a stack of our own, so
that its depth is limited by the claims and not by Python: a choice yields the place where the
search goes on, gets its result, and takes its device back before it tries the next one.
"""

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import NamedTuple

from dray.api.claims import Claim, DeviceRequest
from dray.api.devices import DeviceClass
from dray.api.names import MAX_GPUS_PER_CLAIM
from dray_allocator.devices.allocation_state import AllocationState
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.errors import AllocationError, SearchLimitError
from dray_allocator.devices.pools import ResourcePool
from dray_allocator.devices.requirements import Alternative, RequestAlternatives
from dray_allocator.devices.versions import SchedulerVersion

Take = Callable[[Claim, DeviceRequest, DeviceClass, Candidate], bool]


class SearchEnd(Enum):
    """How a choice ended that was no part of a solution."""

    NO_FIT = "no fit"
    TOO_MANY = "too many"
    """A claim would hold more devices than a claim can: other devices change nothing about it,
    only an alternative that takes fewer."""


class SearchPosition(NamedTuple):
    """The device that is looked for next."""

    claim: int = 0
    request: int = 0
    alternative: int | None = None
    """None until one is chosen."""
    device: int = 0
    start: int = 0
    """Where among all devices the request goes on: the order within a request does not matter."""


Choice = Generator[SearchPosition, SearchEnd, SearchEnd]


class Search:
    """One search for devices for all claims together.

    ``candidates`` are those that a request tries, in their order.
    """

    def __init__(
        self,
        claims: Sequence[Claim],
        plans: Sequence[Sequence[RequestAlternatives]],
        candidates: Callable[[Alternative], Sequence[Candidate]],
        state: AllocationState,
        take: Take,
        rules: SchedulerVersion,
        budget: SearchBudget,
        *,
        invalid: ResourcePool | None = None,
    ) -> None:
        self._claims = claims
        self._plans = plans
        self._candidates = candidates
        self._state = state
        self._selected = take
        self._rules = rules
        self._invalid = invalid
        self._budget = budget
        self.chosen: dict[tuple[int, int], int] = {}
        """The alternative of each request that has several."""

    def run(self) -> bool:
        """Whether there is a solution; the state then holds it.

        Raises:
            AllocationError: something on the way ends the attempt, or the first claim comes to too
                many devices in every way (which `all_forgets_alternative` alone leads to).
            SearchLimitError: it takes too long.
        """
        if not self._claims:
            return True
        stack = [self._choice(SearchPosition())]
        ending: SearchEnd | None = None
        while stack:
            try:
                place = next(stack[-1]) if ending is None else stack[-1].send(ending)
            except StopIteration as end:
                stack.pop()
                ending = end.value
                continue
            if place.claim == len(self._claims):
                return True
            stack.append(self._choice(place))
            ending = None
        if ending is SearchEnd.TOO_MANY:
            raise AllocationError(
                f"claim {self._claims[0]}: allocation max size exceeded: each alternative comes to "
                f"more than {MAX_GPUS_PER_CLAIM} devices"
            )
        return False

    def _choice(self, place: SearchPosition) -> Choice:
        plan = self._plans[place.claim]
        if place.request == len(plan):
            return self._next_claim(place)
        wanted = plan[place.request]
        if place.alternative is None and wanted.is_choice:
            return self._alternatives(place, wanted)
        alternative = wanted.alternatives[place.alternative or 0]
        if alternative.every is not None and not alternative.every:
            return _refused(SearchEnd.NO_FIT)
        if place.device >= alternative.count:
            return self._next_request(place)
        missing = alternative.count - place.device
        if len(self._state.taken[place.claim]) + missing > MAX_GPUS_PER_CLAIM:
            return _refused(SearchEnd.TOO_MANY)
        if alternative.every is not None:
            return self._this_device(place, alternative, alternative.every[place.device])
        return self._devices(place, alternative)

    def _next_claim(self, place: SearchPosition) -> Choice:
        yield SearchPosition(place.claim + 1)
        # Too many devices for the next claim says nothing about this one's.
        return SearchEnd.NO_FIT

    def _next_request(self, place: SearchPosition) -> Choice:
        return (yield SearchPosition(place.claim, place.request + 1))

    def _alternatives(self, place: SearchPosition, wanted: RequestAlternatives) -> Choice:
        """The first alternative that is available, and with which all others are."""
        ending = SearchEnd.TOO_MANY
        for index in range(len(wanted.alternatives)):
            self.chosen[place.claim, place.request] = index
            if (yield SearchPosition(place.claim, place.request, index)) is SearchEnd.NO_FIT:
                ending = SearchEnd.NO_FIT
        return ending

    def _this_device(
        self, place: SearchPosition, alternative: Alternative, device: Candidate
    ) -> Choice:
        """Mode All: the device is had, or the request fails."""
        self._look()
        undo = self._state.take(place.claim, alternative, device, must=True)
        if undo is None:
            return SearchEnd.NO_FIT
        forgets = self._rules.all_forgets_alternative and place.alternative is not None
        chosen = 0 if forgets else place.alternative
        ending = yield SearchPosition(place.claim, place.request, chosen, place.device + 1)
        undo()
        return ending

    def _devices(self, place: SearchPosition, alternative: Alternative) -> Choice:
        claim, ask = self._claims[place.claim], alternative.ask
        candidates = self._candidates(alternative)
        for index in range(place.start, len(candidates)):
            self._look()
            candidate = candidates[index]
            if not self._state.is_free(place.claim, ask, candidate):
                continue
            if not self._selected(claim, ask, alternative.of_class, candidate):
                continue
            if not self._state.has_room(ask, candidate):
                continue
            undo = self._state.take(place.claim, alternative, candidate, must=False)
            if undo is None:
                continue
            start = 0 if self._rules.repeats_within_request else index + 1
            ending = yield SearchPosition(
                place.claim, place.request, place.alternative, place.device + 1, start
            )
            undo()
            if ending is SearchEnd.TOO_MANY:
                return ending
        if self._invalid is not None and self._rules.stops_at_invalid_pools:
            raise AllocationError(f"pool {self._invalid} is invalid: {self._invalid.invalid}")
        return SearchEnd.NO_FIT

    def _look(self) -> None:
        if not self._budget.take():
            raise SearchLimitError(
                f"gave up after looking at {self._budget.most} devices without an answer: the "
                "claims leave too many combinations open; ask for fewer devices at a time, or "
                "narrow the selectors"
            )


def _refused(ending: SearchEnd) -> Choice:
    return ending
    yield
