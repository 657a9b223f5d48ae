"""The search in another order than kube-scheduler's: best rated or connected devices first.

The search is the same; only the candidates and their order differ.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from dray.api.claims import Claim, DeviceRequest
from dray.api.devices import DeviceClass
from dray_allocator.devices.allocation_state import AllocationState, TakenDevice
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.capacity import DemandOf
from dray_allocator.devices.devices_in_use import DevicesInUse
from dray_allocator.devices.errors import SearchLimitError
from dray_allocator.devices.links import LINK_LEVELS, NOT_CONNECTED, LinkSets
from dray_allocator.devices.requirements import Alternative, RequestAlternatives
from dray_allocator.devices.search import Search
from dray_allocator.devices.versions import SchedulerVersion

PreferenceKey = tuple[int, ...]
Rating = tuple[PreferenceKey, int, int]
"""Preference key, score and tie break of a device; the lowest is best."""
Candidates = Mapping[int, Sequence[Candidate]]
"""By ``id`` of an alternative, the devices that fit it, if it is considered alone."""


def worst_first(keys: Iterable[PreferenceKey]) -> tuple[PreferenceKey, ...]:
    """The key of a set of devices: the worst one is compared first."""
    return tuple(sorted(keys, reverse=True))


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The claims of a pod and their requests."""

    claims: tuple[Claim, ...]
    requests: tuple[tuple[RequestAlternatives, ...], ...]
    """The requests of each claim."""

    alternatives: tuple[Alternative, ...] = field(init=False)
    """The alternatives of all requests, in order."""
    is_single: bool = field(init=False)
    """Whether there is one request, without constraints, alternatives and mode All."""
    has_choice: bool = field(init=False)
    """Whether a request has several alternatives."""
    takes_every: bool = field(init=False)
    """Whether a request is of mode All."""

    def __post_init__(self) -> None:
        every = (
            one for wanted in self.requests for request in wanted for one in request.alternatives
        )
        object.__setattr__(self, "alternatives", tuple(every))
        is_free = not any(claim.spec.constraints for claim in self.claims)
        is_one = len(self.alternatives) == 1 and self.alternatives[0].all_devices is None
        object.__setattr__(self, "is_single", is_free and is_one)
        requests = sum(map(len, self.requests))
        object.__setattr__(self, "has_choice", len(self.alternatives) > requests)
        takes_every = any(one.all_devices is not None for one in self.alternatives)
        object.__setattr__(self, "takes_every", takes_every)


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """Devices for all requests, and the link level of the set."""

    taken: tuple[TakenDevice, ...]
    """In the order of the claims and of their requests."""
    level: int


@dataclass(slots=True)
class OrderedSearch:
    """One search on one node."""

    plan: SearchPlan
    version: SchedulerVersion
    budget: SearchBudget
    usage: DevicesInUse
    demand_of: DemandOf
    rate: Callable[[Alternative, Candidate], Rating]
    _state: AllocationState | None = field(init=False, default=None)
    """The state of a failed search, which is empty again and can be reused."""

    def in_order(self, fitting: Candidates) -> Candidates:
        """Sort the candidates of each alternative, the best first."""
        return {
            id(one): sorted(fitting[id(one)], key=partial(self.rate, one))
            for one in self.plan.alternatives
        }

    def best(
        self, candidates: Candidates, *, connects: bool, must: bool = False
    ) -> DeviceSet | None:
        """The first candidates that fit; with ``connects``, those of the best link level.

        With ``must``, only connected devices fit; shares of a single device are connected. An
        earlier alternative comes before a better link level. Link levels are ignored for mode All,
        which leaves no choice of devices.

        None if no devices fit, or if the budget was spent before some were found.
        """
        if connects and not self.plan.takes_every:
            if self.plan.has_choice:
                first = self.fill(candidates)
                if first is None:
                    return None
                chosen = {id(one.alternative): candidates[id(one.alternative)] for one in first}
                candidates = {key: chosen.get(key, ()) for key in candidates}
                self.budget.reset()
            found = self._connected(candidates)
            if found is not None:
                return found
            if must:
                return self._on_one_device(candidates)
            self.budget.reset()
        taken = self.fill(candidates)
        return None if taken is None else DeviceSet(taken, NOT_CONNECTED)

    def fill(self, candidates: Candidates) -> tuple[TakenDevice, ...] | None:
        """The first devices that fit."""
        if not self._are_enough(candidates):
            return None
        if self.plan.is_single:
            found = candidates[id(self.plan.alternatives[0])]
            if not any(one.device.consumes for one in found):
                return self._first(found)
        state = self._state or AllocationState(
            self.plan.claims, self.usage, self.version, self.demand_of
        )
        search = Search(
            self.plan.claims,
            self.plan.requests,
            lambda alternative: candidates[id(alternative)],
            state,
            _is_selected,
            self.version,
            self.budget,
        )
        self._state = None
        try:
            is_found = search.run()
        except SearchLimitError:
            return None
        if is_found:
            return tuple([one for taken in state.taken for one in taken])
        self._state = state
        return None

    def _first(self, candidates: Sequence[Candidate]) -> tuple[TakenDevice, ...] | None:
        """The first candidates: without constraints and counters, the search would find the
        same."""
        one, taken = self.plan.alternatives[0], []
        for candidate in candidates[: one.count]:
            if not self.budget.take():
                return None
            wanted = self.demand_of(one.ask, candidate)
            is_share = candidate.device.allow_multiple_allocations
            amounts = wanted.amounts if wanted is not None and is_share else {}
            taken.append(TakenDevice(one, candidate, is_share, amounts))
        return tuple(taken)

    def _connected(self, candidates: Candidates) -> DeviceSet | None:
        """The best rated devices of the best link level. Of equals, those in the set with the
        fewest candidates, so that larger sets remain unused."""
        sets = LinkSets(_every(candidates))
        for level in LINK_LEVELS:
            found = [
                (taken, len(among))
                for among in sets.of(level)
                if (taken := self.fill(_only(candidates, among))) is not None
            ]
            if found:
                return DeviceSet(min(found, key=self._set_rating)[0], level)
        return None

    def _on_one_device(self, candidates: Candidates) -> DeviceSet | None:
        for device in _every(candidates):
            taken = self.fill(_only(candidates, frozenset((device,))))
            if taken is not None:
                return DeviceSet(taken, NOT_CONNECTED)
        return None

    def _set_rating(
        self, found: tuple[Sequence[TakenDevice], int]
    ) -> tuple[tuple[PreferenceKey, ...], int, int, int]:
        taken, size = found
        rated = [self.rate(one.alternative, one.candidate) for one in taken]
        worst = worst_first(key for key, _, _ in rated)
        return worst, sum(score for _, score, _ in rated), size, min(tie for _, _, tie in rated)

    def _are_enough(self, candidates: Candidates) -> bool:
        for wanted in self.plan.requests:
            for request in wanted:
                if all(len(candidates[id(one)]) < one.count for one in request.alternatives):
                    return False
        return True


def _every(candidates: Candidates) -> dict[Candidate, None]:
    return dict.fromkeys([one for some in candidates.values() for one in some])


def _only(candidates: Candidates, among: frozenset[Candidate]) -> Candidates:
    return {key: [one for one in some if one in among] for key, some in candidates.items()}


def _is_selected(
    claim: Claim, ask: DeviceRequest, of_class: DeviceClass, candidate: Candidate
) -> bool:
    """Candidates were matched before the search."""
    return True
