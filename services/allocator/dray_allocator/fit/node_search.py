"""The structured search on one node, for requests and devices that the node table reads."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from dray.domain.devices import DeviceClass, DeviceId
from dray.domain.dra.asks import Ask as StructuredAsk
from dray.domain.dra.asks import Claim
from dray_allocator.fit.devices import Card, NodeDevices
from dray_allocator.fit.ledger import Ledger
from dray_allocator.fit.search import RULES, Ask, Share, eligible
from dray_allocator.fit.selectors import Selectors
from dray_allocator.lane.asking import request_of
from dray_allocator.structured.budget import SearchBudget
from dray_allocator.structured.candidates import Candidate
from dray_allocator.structured.capacity import Demand
from dray_allocator.structured.ordered import OrderedSearch, Plan, Rating
from dray_allocator.structured.plan import Alternative, Wanted
from dray_allocator.structured.usage import Usage

_CLASS: Final = DeviceClass("")
"""An ask has its class's selectors, and decisions its configuration."""


class Found(msgspec.Struct, frozen=True, gc=False):
    """Devices for all asks, and the link level of the set (``structured.links``)."""

    shares: tuple[Share, ...]
    level: int


def plan_of(asks: Sequence[Ask], claims: int) -> Plan:
    """The asks of so many claims, in their order, as the search reads them."""
    return Plan(
        tuple([_claim([ask for ask in asks if ask.claim == claim]) for claim in range(claims)]),
        tuple(
            [tuple([_wanted(ask) for ask in asks if ask.claim == claim]) for claim in range(claims)]
        ),
    )


def _claim(asks: Sequence[Ask]) -> Claim:
    """As far as the search reads it: who it is does not matter."""
    constraints = dict.fromkeys(one for ask in asks for one in ask.constraints)
    return Claim("", "", constraints=tuple(constraints))


def _wanted(ask: Ask) -> Wanted:
    request = request_of(ask.request)
    assert request.exactly is not None
    alternative = Alternative(request.name, "", request.exactly, _CLASS, request.exactly.count)
    return Wanted((alternative,), is_choice=False)


@dataclass(slots=True)
class NodeSearch:
    """One pod's search on nodes, one by one."""

    asks: Sequence[Ask]
    plan: Plan
    """Of the asks."""
    ledger: Ledger
    selectors: Selectors
    rate: Callable[[Ask, Card], Rating]
    """The lowest is tried first."""
    budget: SearchBudget

    def best(
        self, devices: NodeDevices, *, connects: bool = False, must: bool = False
    ) -> Found | None:
        """See ``OrderedSearch.best``."""
        asks: dict[int, Ask] = {}
        for (_, one), ask in zip(self.plan.alternatives, self.asks, strict=True):
            asks[id(one)] = asks[id(one.ask)] = ask
        cards: dict[Candidate, Card] = {}

        def suiting(alternative: Alternative) -> Iterator[Candidate]:
            for card in eligible(asks[id(alternative)], devices, self.selectors):
                cards[card.candidate] = card
                yield card.candidate

        def demand_of(ask: StructuredAsk, candidate: Candidate) -> Demand | None:
            return asks[id(ask)].of(cards[candidate])

        def rate(alternative: Alternative, candidate: Candidate) -> Rating:
            return self.rate(asks[id(alternative)], cards[candidate])

        usage = usage_of_cards(self.ledger, devices.cards)
        search = OrderedSearch(self.plan, RULES, self.budget, usage, demand_of, rate)
        candidates = search.candidates(suiting)
        if candidates is None:
            return None
        found = search.best(candidates, connects=connects, must=must)
        if found is None:
            return None
        shares = []
        for taken in found.taken:
            ask, card = asks[id(taken.alternative)], cards[taken.candidate]
            consumed = ask.of(card)
            assert consumed is not None
            shares.append(Share(ask, card, consumed))
        return Found(tuple(shares), found.level)


def usage_of_cards(ledger: Ledger, cards: Sequence[Card]) -> Usage:
    """What is in use of devices. One that is not shared counts as held whatever it is used for:
    it may have been shared before."""
    whole: set[DeviceId] = set()
    consumed: dict[DeviceId, dict[str, int]] = {}
    for card in cards:
        use = ledger.of(card.id)
        if use.whole or (use.shares and not card.device.allow_multiple_allocations):
            whole.add(card.id)
        elif use.shares:
            consumed[card.id] = use.used
    return Usage(whole, consumed.keys(), consumed)
