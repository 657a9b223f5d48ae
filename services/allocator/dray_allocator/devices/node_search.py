"""The structured search on one node, for requests and devices that the node table reads."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from dray.api.claims import Claim, ClaimSpec, DeviceRequest
from dray.api.devices import DeviceClass, DeviceId
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.capacity import Demand
from dray_allocator.devices.device_requests import (
    RULES,
    DeviceRequirements,
    Share,
    eligible,
    has_room,
)
from dray_allocator.devices.device_usage import DeviceUsage
from dray_allocator.devices.node_devices import Card, NodeDevices
from dray_allocator.devices.ordered_search import OrderedSearch, Rating, SearchPlan
from dray_allocator.devices.requirements import Alternative, RequestAlternatives
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.devices.usage import Usage

_CLASS: Final = DeviceClass("")
"""An ask has its class's selectors, and decisions its configuration."""


class Found(msgspec.Struct, frozen=True, gc=False):
    """Devices for all asks, and the link level of the set (``devices.links``)."""

    shares: tuple[Share, ...]
    level: int


def plan_of(asks: Sequence[DeviceRequirements], claims: int) -> SearchPlan:
    """The asks of so many claims, in their order, as the search reads them."""
    return SearchPlan(
        tuple([_claim([ask for ask in asks if ask.claim == claim]) for claim in range(claims)]),
        tuple(
            [tuple([_wanted(ask) for ask in asks if ask.claim == claim]) for claim in range(claims)]
        ),
    )


def _claim(asks: Sequence[DeviceRequirements]) -> Claim:
    """As far as the search reads it: who it is does not matter."""
    constraints = dict.fromkeys(one for ask in asks for one in ask.constraints)
    return Claim("", "", "", 0, "", ClaimSpec(constraints=tuple(constraints)))


def _wanted(ask: DeviceRequirements) -> RequestAlternatives:
    request = ask.request
    alternative = Alternative(request.name, "", request, _CLASS, request.count)
    return RequestAlternatives((alternative,), is_choice=False)


@dataclass(slots=True)
class DeviceSearch:
    """One pod's search on nodes, one by one."""

    asks: Sequence[DeviceRequirements]
    plan: SearchPlan
    """Of the asks."""
    device_usage: DeviceUsage
    selectors: SelectorCache
    rate: Callable[[DeviceRequirements, Card], Rating]
    """The lowest is tried first."""
    budget: SearchBudget

    def best(
        self, devices: NodeDevices, *, connects: bool = False, must: bool = False
    ) -> Found | None:
        """See ``OrderedSearch.best``."""
        asks: dict[int, DeviceRequirements] = {}
        cards: dict[Candidate, Card] = {}
        fitting: dict[int, list[Candidate]] = {}
        for one, ask in zip(self.plan.alternatives, self.asks, strict=True):
            found = self._fitting(ask, devices)
            if len(found) < one.count:
                return None
            asks[id(one)] = asks[id(one.ask)] = ask
            fitting[id(one)] = [card.candidate for card in found]
            cards.update(zip(fitting[id(one)], found, strict=True))

        def demand_of(ask: DeviceRequest, candidate: Candidate) -> Demand | None:
            return asks[id(ask)].of(cards[candidate])

        def rate(alternative: Alternative, candidate: Candidate) -> Rating:
            return self.rate(asks[id(alternative)], cards[candidate])

        usage = usage_of_cards(self.device_usage, cards.values())
        search = OrderedSearch(self.plan, RULES, self.budget, usage, demand_of, rate)
        best = search.best(search.in_order(fitting), connects=connects, must=must)
        if best is None:
            return None
        return Found(
            tuple([_share(asks[id(one.alternative)], cards[one.candidate]) for one in best.taken]),
            best.level,
        )

    def _fitting(self, ask: DeviceRequirements, devices: NodeDevices) -> list[Card]:
        """The devices that an ask could have by itself."""
        device_usage = self.device_usage
        return [
            card
            for card in eligible(ask, devices, self.selectors)
            if (consumed := ask.of(card)) is not None and has_room(device_usage, card, consumed)
        ]


def _share(ask: DeviceRequirements, card: Card) -> Share:
    consumed = ask.of(card)
    assert consumed is not None
    return Share(ask, card, consumed)


def usage_of_cards(device_usage: DeviceUsage, cards: Iterable[Card]) -> Usage:
    """What is in use of devices. One that is not shared counts as held whatever it is used for:
    it may have been shared before."""
    whole: set[DeviceId] = set()
    consumed: dict[DeviceId, dict[str, int]] = {}
    for card in cards:
        use = device_usage.of(card.id)
        if use.whole or (use.shares and not card.device.allow_multiple_allocations):
            whole.add(card.id)
        elif use.shares:
            consumed[card.id] = use.used
    return Usage(whole, consumed.keys(), consumed)
