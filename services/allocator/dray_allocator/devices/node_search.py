"""The search for the cards of one node."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from dray.api.claims import Claim, ClaimSpec, DeviceRequest
from dray.api.devices import DeviceClass, DeviceId
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.capacity import Demand
from dray_allocator.devices.device_requests import (
    VERSION,
    DeviceRequirements,
    Share,
    eligible,
)
from dray_allocator.devices.devices_in_use import DevicesInUse
from dray_allocator.devices.ordered_search import OrderedSearch, Rating, SearchPlan
from dray_allocator.devices.published_devices import Card, NodeDevices
from dray_allocator.devices.requirements import Alternative, RequestAlternatives
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.devices.usage import UsageLedger

_CLASS: Final = DeviceClass("")
"""Empty: requests hold the selectors of their class, and decisions its configuration."""


class FoundDevices(msgspec.Struct, frozen=True, gc=False):
    """Devices for all requests, and their link level (``devices.links``)."""

    shares: tuple[Share, ...]
    level: int


def search_plan(asks: Sequence[DeviceRequirements], claims: int) -> SearchPlan:
    """The search plan for the requests of a number of claims."""
    return SearchPlan(
        tuple([_claim([ask for ask in asks if ask.claim == claim]) for claim in range(claims)]),
        tuple(
            [tuple([_wanted(ask) for ask in asks if ask.claim == claim]) for claim in range(claims)]
        ),
    )


def _claim(asks: Sequence[DeviceRequirements]) -> Claim:
    """A claim with only the fields that the search reads."""
    constraints = dict.fromkeys(one for ask in asks for one in ask.constraints)
    return Claim("", "", "", 0, "", ClaimSpec(constraints=tuple(constraints)))


def _wanted(ask: DeviceRequirements) -> RequestAlternatives:
    request = ask.request
    alternative = Alternative(request.name, "", request, _CLASS, request.count)
    return RequestAlternatives((alternative,), is_choice=False)


@dataclass(slots=True)
class DeviceSearch:
    """The search for one pod, node by node."""

    asks: Sequence[DeviceRequirements]
    plan: SearchPlan
    """The plan of ``asks``."""
    device_usage: UsageLedger
    selectors: SelectorCache
    rate: Callable[[DeviceRequirements, Card], Rating]
    """The card with the lowest rating is tried first."""
    budget: SearchBudget

    def best(
        self, devices: NodeDevices, *, connects: bool = False, must: bool = False
    ) -> FoundDevices | None:
        """See ``OrderedSearch.best``."""
        asks: dict[int, DeviceRequirements] = {}
        fitting: dict[int, list[Card]] = {}
        for one, ask in zip(self.plan.alternatives, self.asks, strict=True):
            fitting[id(one)] = found = self._fitting(ask, devices)
            if len(found) < one.count:
                return None
            asks[id(one)] = asks[id(one.ask)] = ask

        # The search calls these with the cards that it gets.
        def demand_of(ask: DeviceRequest, card: Any) -> Demand | None:
            return asks[id(ask)].of(card)

        def rate(alternative: Alternative, card: Any) -> Rating:
            return self.rate(asks[id(alternative)], card)

        usage = _cards_in_use(self.device_usage, dict.fromkeys(chain(*fitting.values())))
        search = OrderedSearch(self.plan, VERSION, self.budget, usage, demand_of, rate)
        best = search.best(search.in_order(fitting), connects=connects, must=must)
        if best is None:
            return None
        return FoundDevices(
            tuple([_share(asks[id(one.alternative)], one.candidate) for one in best.taken]),
            best.level,
        )

    def _fitting(self, ask: DeviceRequirements, devices: NodeDevices) -> list[Card]:
        """The cards that fit a request, if it is considered alone."""
        device_usage = self.device_usage
        return [
            card
            for card in eligible(ask, devices, self.selectors)
            if (consumed := ask.of(card)) is not None and device_usage.has_room(card, consumed)
        ]


def _share(ask: DeviceRequirements, card: Any) -> Share:
    consumed = ask.of(card)
    assert consumed is not None
    return Share(ask, card, consumed)


def _cards_in_use(device_usage: UsageLedger, cards: Iterable[Card]) -> DevicesInUse:
    """The usage of cards. A card that is in use and does not allow multiple allocations counts as
    held: it may have allowed them before."""
    whole: set[DeviceId] = set()
    consumed: dict[DeviceId, dict[str, int]] = {}
    for card in cards:
        use = device_usage.of(card.id)
        if use.whole or (use.shares and not card.device.allow_multiple_allocations):
            whole.add(card.id)
        elif use.shares:
            consumed[card.id] = use.used
    return DevicesInUse(whole, consumed.keys(), consumed)
