"""A search in an order other than Kubernetes': the devices rated best first, and connected ones.

What fits is found by the same search, over the same books; this says only which devices it tries,
and in which order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dray.domain.devices import DeviceClass
from dray.domain.dra.asks import Ask, Claim
from dray_allocator.structured.budget import SearchBudget
from dray_allocator.structured.candidates import Candidate
from dray_allocator.structured.capacity import DemandOf
from dray_allocator.structured.errors import SearchLimitError
from dray_allocator.structured.links import LINK_LEVELS, NOT_CONNECTED, connected
from dray_allocator.structured.plan import Alternative, Wanted
from dray_allocator.structured.rules import Rules
from dray_allocator.structured.search import Search
from dray_allocator.structured.taking import Books, Taken
from dray_allocator.structured.usage import Usage

Key = tuple[int, ...]
Rating = tuple[Key, int, int]
"""What a device is worth to a preference, its score and its tie; the lowest is best."""
Candidates = Mapping[int, Sequence[Candidate]]
"""Per alternative (by its ``id``), the devices that it may have, in the order of trying."""


def worst_first(keys: Iterable[Key]) -> tuple[Key, ...]:
    """Of several devices together: the worst counts first, as they wait for each other."""
    return tuple(sorted(keys, reverse=True))


@dataclass(frozen=True, slots=True)
class Plan:
    """The claims of a pod, as the search reads them."""

    claims: tuple[Claim, ...]
    requests: tuple[tuple[Wanted, ...], ...]
    """Of each claim."""

    @property
    def alternatives(self) -> list[tuple[int, Alternative]]:
        """Every request and every alternative, with the number of its claim."""
        return [
            (claim, one)
            for claim, wanted in enumerate(self.requests)
            for request in wanted
            for one in request.alternatives
        ]


@dataclass(frozen=True, slots=True)
class Found:
    """Devices for all requests, and the link level of the set."""

    taken: tuple[Taken, ...]
    """In the order of the claims and of their requests."""
    level: int


@dataclass(slots=True)
class OrderedSearch:
    """One search on one node."""

    plan: Plan
    rules: Rules
    budget: SearchBudget
    usage: Usage
    demand_of: DemandOf
    rate: Callable[[Alternative, Candidate], Rating]
    _ratings: dict[tuple[int, Candidate], Rating] = field(init=False, default_factory=dict)

    def candidates(
        self, suiting: Callable[[Alternative], Iterable[Candidate]]
    ) -> Candidates | None:
        """The devices that each request could have by itself; None where one has too few.

        ``suiting``: those that its selectors take and whose taints it tolerates.
        """
        found: dict[int, list[Candidate]] = {}
        books = self._books()
        for claim, one in self.plan.alternatives:
            fitting = [
                candidate
                for candidate in suiting(one)
                if books.is_free(claim, one.ask, candidate) and books.has_room(one.ask, candidate)
            ]
            fitting.sort(key=lambda candidate: self._rating(one, candidate))
            found[id(one)] = fitting
        return found if self._are_enough(found) else None

    def best(self, candidates: Candidates, *, connects: bool, must: bool = False) -> Found | None:
        """The first devices that fit; with ``connects`` those of the best link level, and with
        ``must`` none that are not connected: shares of a single device are.

        None where there are none, or where the budget ran out before they were found.
        """
        if connects:
            for level in LINK_LEVELS:
                taken = self._of_level(candidates, level)
                if taken is not None:
                    return Found(taken, level)
            if must:
                return self._on_one_device(candidates)
            self.budget.renew()
        taken = self.fill(candidates)
        return None if taken is None else Found(taken, NOT_CONNECTED)

    def fill(self, candidates: Candidates) -> tuple[Taken, ...] | None:
        """The first devices that fit."""
        if not self._are_enough(candidates):
            return None
        books = self._books()
        search = Search(
            self.plan.claims,
            self.plan.requests,
            lambda alternative: candidates[id(alternative)],
            books,
            _suits,
            self.rules,
            self.budget,
        )
        try:
            is_found = search.run()
        except SearchLimitError:
            return None
        return tuple([one for taken in books.taken for one in taken]) if is_found else None

    def _of_level(self, candidates: Candidates, level: int) -> tuple[Taken, ...] | None:
        """Within the set of a link level whose devices rate best; of equals the one with the
        fewest devices to choose from, so that large sets stay whole."""
        every = dict.fromkeys(one for some in candidates.values() for one in some)
        found = [
            (self._set_rating(taken, len(among)), taken)
            for among in connected(every, level)
            if (taken := self.fill(_only(candidates, among))) is not None
        ]
        return min(found, key=lambda one: one[0])[1] if found else None

    def _on_one_device(self, candidates: Candidates) -> Found | None:
        for device in dict.fromkeys(one for some in candidates.values() for one in some):
            taken = self.fill(_only(candidates, frozenset((device,))))
            if taken is not None:
                return Found(taken, NOT_CONNECTED)
        return None

    def _set_rating(
        self, taken: Sequence[Taken], size: int
    ) -> tuple[tuple[Key, ...], int, int, int]:
        rated = [self._rating(one.alternative, one.candidate) for one in taken]
        worst = worst_first(key for key, _, _ in rated)
        return worst, sum(score for _, score, _ in rated), size, min(tie for _, _, tie in rated)

    def _rating(self, alternative: Alternative, candidate: Candidate) -> Rating:
        key = id(alternative), candidate
        found = self._ratings.get(key)
        if found is None:
            found = self._ratings[key] = self.rate(alternative, candidate)
        return found

    def _are_enough(self, candidates: Candidates) -> bool:
        return all(
            any(len(candidates[id(one)]) >= one.count for one in request.alternatives)
            for wanted in self.plan.requests
            for request in wanted
        )

    def _books(self) -> Books:
        return Books(self.plan.claims, self.usage, self.rules, self.demand_of)


def _only(candidates: Candidates, among: frozenset[Candidate]) -> Candidates:
    return {key: [one for one in some if one in among] for key, some in candidates.items()}


def _suits(claim: Claim, ask: Ask, of_class: DeviceClass, candidate: Candidate) -> bool:
    """What ``candidates`` found out before."""
    return True


FIRST_LOOKS: Final = 200
"""Devices looked at on a node before the next one: where it is easy, it takes as many as asked
for."""
NODE_LOOKS: Final = 5_000
"""Devices looked at on one node before it counts as unfit: constraints can make a search long."""
POD_LOOKS: Final = 20_000
"""Devices looked at for one pod, on all nodes together, in some tenths of a second."""
