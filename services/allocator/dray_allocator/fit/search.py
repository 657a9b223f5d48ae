"""The devices of one node for all requests of a pod's claims together, or none at all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from dray.domain import names
from dray.domain.claims import Constraint, DeviceRequest
from dray.domain.devices import DeviceId, Taint
from dray.domain.preference import Preference as Criteria
from dray.domain.quantities import Quantity
from dray_allocator.fit.constraints import Chosen, allows
from dray_allocator.fit.devices import Card, NodeDevices
from dray_allocator.fit.ledger import Ledger
from dray_allocator.fit.percent import amounts
from dray_allocator.fit.selectors import Selectors
from dray_allocator.structured.capacity import WHOLE, Demand, demand
from dray_allocator.structured.errors import AllocationError
from dray_allocator.structured.rules import rules_for

STEPS = 5_000
"""Devices tried on one node before it counts as unfit: constraints can make a search long."""
FIRST_STEPS = 200
"""Devices tried on a node before the next one: where it is easy, it takes as many as asked for."""
POD_STEPS = 20_000
"""Devices tried for one pod, on all nodes together, in some tenths of a second."""

_RULES = rules_for("1.37")
"""As in ``lane.asking``: capacities are counted by one version's rules, whatever the server's."""
NO_PERCENTS: Mapping[str, int] = {}
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


class Ask(msgspec.Struct, frozen=True, gc=False):
    """One request of one claim, with its class's selectors. Pods of one pattern share it."""

    claim: int
    """Which of the pod's open claims it is of."""
    request: DeviceRequest
    selectors: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    signature: bytes
    """Equal for requests that the same devices satisfy."""
    percents: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Shares that depend on the device (``fit.percent``)."""
    preference: Criteria = ()
    """Which devices it would rather have, of those that fit."""
    amounts: dict[int, Demand | None] = msgspec.field(default_factory=dict)
    """What it takes of a device, per capacity shape; one for all that ask for the same."""

    def of(self, card: Card) -> Demand | None:
        """What it takes of this device; None where policy or size forbids it."""
        shape, amounts = card.capacity_shape, self.amounts
        if shape < 0:
            return needed(self.request, card, self.percents)
        if shape not in amounts:
            amounts[shape] = needed(self.request, card, self.percents)
        return amounts[shape]


class Share(msgspec.Struct, frozen=True, gc=False):
    """A device given to an ask."""

    ask: Ask
    card: Card
    consumed: Demand


Candidates = dict[int, list[tuple[Card, Demand]]]
"""Per ask (by its ``id``), cards of a node with what it takes of them, in the order of trying."""

Preference = Callable[[Ask, Card], tuple[tuple[int, ...], int, int]]
"""The lowest is tried first: what the pod prefers, then the score, then the tie."""


def eligible(ask: Ask, devices: NodeDevices, selectors: Selectors) -> tuple[Card, ...]:
    """Devices of a node that match and whose taints are tolerated; use is not looked at."""
    known = devices.eligible.get(ask.signature)
    if known is not None:
        return known
    return devices.remember(
        ask.signature,
        tuple(
            card
            for card in devices.cards
            if not card.fault
            and untolerated(ask.request, card) is None
            and selectors.matches(ask.selectors, card)
        ),
    )


def untolerated(request: DeviceRequest, card: Card) -> Taint | None:
    """A taint that keeps the request away. dray's own owner taint is for other allocators."""
    for taint in card.device.taints:
        if taint.effect not in _KEEPS_AWAY or taint.key == names.OWNER_TAINT:
            continue
        if not any(toleration.tolerates(taint) for toleration in request.tolerations):
            return taint
    return None


@dataclass(slots=True)
class Tries:
    """How many devices may still be tried, for one pod and on one node of those in turn."""

    pod: int = POD_STEPS
    node: int = 0
    ran_out: bool = False
    """Whether the last search ended for want of tries, and so says nothing about its node."""

    def at_most(self, steps: int) -> "Tries":
        """Begin with a node."""
        self.node, self.ran_out = steps, False
        return self

    def take(self) -> bool:
        """Try one more; False where there is none left."""
        self.ran_out = self.ran_out or not (self.pod and self.node)
        if not self.ran_out:
            self.pod -= 1
            self.node -= 1
        return not self.ran_out


@dataclass(slots=True)
class Search:
    """Depth-first over the asks; within a request combinations, not permutations."""

    ledger: Ledger
    preference: Preference
    tries: Tries
    _taken: list[Share] = field(default_factory=list)

    def place(
        self, asks: Sequence[Ask], devices: NodeDevices, selectors: Selectors
    ) -> list[Share] | None:
        """A device for every unit of every ask, in their order; None where they don't fit."""
        found = self.candidates(asks, devices, selectors)
        shares = None if found is None else self.fill(asks, found)
        return None if shares is None else list(shares)

    def candidates(
        self, asks: Sequence[Ask], devices: NodeDevices, selectors: Selectors
    ) -> Candidates | None:
        """The cards that each ask could have alone; None where one has too few."""
        candidates: Candidates = {}
        for ask in asks:
            found = self._candidates(ask, eligible(ask, devices, selectors))
            if len(found) < ask.request.count:
                return None
            candidates[id(ask)] = found
        return candidates

    def fill(self, asks: Sequence[Ask], candidates: Candidates) -> tuple[Share, ...] | None:
        """A candidate for every unit of every ask; None where they don't fit."""
        if any(len(candidates[id(ask)]) < ask.request.count for ask in asks):
            return None
        slots = [ask for ask in asks for _ in range(ask.request.count)]
        self._taken.clear()
        return tuple(self._taken) if self._fill(slots, 0, candidates, 0) else None

    def _candidates(self, ask: Ask, cards: Sequence[Card]) -> list[tuple[Card, Demand]]:
        found = []
        for card in cards:
            consumed = ask.of(card)
            if consumed is not None and has_room(self.ledger, card, consumed, ()):
                found.append((card, consumed))
        found.sort(key=lambda one: self.preference(ask, one[0]))
        return found

    def _fill(
        self,
        slots: Sequence[Ask],
        at: int,
        candidates: Candidates,
        start: int,
    ) -> bool:
        if at == len(slots):
            return True
        ask = slots[at]
        again = at + 1 < len(slots) and slots[at + 1] is ask
        found = candidates[id(ask)]
        for index in range(start, len(found)):
            if not self.tries.take():
                return False
            card, consumed = found[index]
            if not self._may_take(ask, card, consumed):
                continue
            self._taken.append(Share(ask, card, consumed))
            if self._fill(slots, at + 1, candidates, index + 1 if again else 0):
                return True
            self._taken.pop()
        return False

    def _may_take(self, ask: Ask, card: Card, consumed: Demand) -> bool:
        shares = [share.consumed for share in self._taken if share.card.id == card.id]
        if shares and not has_room(self.ledger, card, consumed, shares):
            return False
        if not ask.constraints:
            return True
        chosen = [
            Chosen(share.ask.claim, share.ask.request.name, share.card) for share in self._taken
        ]
        return allows(ask.constraints, ask.claim, ask.request.name, card, chosen)


def needed(
    request: DeviceRequest, card: Card, percents: Mapping[str, int] = NO_PERCENTS
) -> Demand | None:
    """What the request takes of this device; None where its policy or size forbids it."""
    device = card.device
    is_shared = device.allow_multiple_allocations
    asked = amounts(percents, request.capacity, device.capacity) if is_shared else request.capacity
    try:
        found = demand(asked, device.capacity, _RULES)
    except AllocationError:
        return None
    if is_shared or found is None:
        return found
    return WHOLE if found.fits_beside({}) else None


def has_room(ledger: Ledger, card: Card, consumed: Demand, beside: Sequence[Demand]) -> bool:
    """Whether the device can give ``consumed`` beside all uses and what is just being taken."""
    use = ledger.of(card.id)
    if use.whole or not card.device.allow_multiple_allocations:
        return not use.shares and not beside
    used, totals = use.used, card.totals
    for key, amount in consumed.nano.items():
        taken = used.get(key, 0) + amount
        for one in beside:
            taken += one.nano[key]
        if taken > totals[key]:
            return False
    return True


def oversold(ledger: Ledger, card: Card | None, device: DeviceId) -> str:
    """How a device is used more than it can be, in words; empty while all is well."""
    if not device.is_whole:
        return ""  # It stands for all devices that it may be.
    use = ledger.of(device)
    if use.shares > 1 and (use.whole or (card and not card.device.allow_multiple_allocations)):
        return f"{device} is taken whole and yet has {use.shares} users"
    if card is None:
        return ""
    for key, amount in use.used.items():
        if key in card.totals and amount > card.totals[key]:
            seen = Quantity(amount, binary=True)
            return f"{device} has {card.device.capacity[key].value} of {key}, {seen} are in use"
    return ""
