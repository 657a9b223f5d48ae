"""A plain search for the devices of one node: what the allocator's search is held to.

Depth first over the asks, one slot per device; within an ask combinations, not permutations. Then
the best link level by a look at every set of cards that something connects.
"""

from dataclasses import dataclass, field
from typing import Any

from dray.api import names
from dray_allocator.devices.device_requests import eligible
from dray_allocator.devices.ordered_search import worst_first

LEVELS = ("nvlink numa pcie", "nvlink numa", "nvlink pcie", "nvlink", "numa pcie", "numa", "pcie")
NOT_CONNECTED = len(LEVELS)
LINKS = {"nvlink": names.NVLINK_DOMAIN, "numa": names.NUMA_NODE, "pcie": names.PCIE_ROOT}


def has_room(device_usage, card, consumed, further=()):
    """Whether a card can give ``consumed`` in addition to all uses and what is just being taken."""
    use = device_usage.of(card.id)
    if use.whole or not card.device.allow_multiple_allocations:
        return not use.shares and not further
    return all(
        use.used.get(key, 0) + amount + sum(one.nano[key] for one in further)
        <= card.shape.totals[key]
        for key, amount in consumed.nano.items()
    )


@dataclass
class Reference:
    """One search on one node; ``rate`` says what is tried first: preference, score, tie."""

    state: Any
    asks: tuple
    rate: Any
    taken: list = field(default_factory=list)

    def candidates(self, node):
        """Per ask the cards that it could have by itself; None if one has too few."""
        found = []
        for ask in self.asks:
            cards = [
                card
                for card in eligible(ask, self.state.published.of(node), self.state.selectors)
                if ask.of(card) is not None
                and has_room(self.state.device_usage, card, ask.of(card))
            ]
            if len(cards) < ask.request.count:
                return None
            found.append(sorted(cards, key=lambda card: self.rate(ask, card)))
        return found

    def shares(self, node):
        """Ask and card for every unit of every ask; None if they don't fit."""
        found = self.candidates(node)
        return None if found is None else self.fill(found)

    def connected(self, node, *, must=False):
        """The same of the best link level, with that level; with ``must`` none that are not
        connected, but on one card."""
        found = self.candidates(node)
        if found is None:
            return None
        for level, links in enumerate(LEVELS):
            sets = [
                (self._rated(shares, among), shares)
                for among in self._connected(found, links.split())
                if (shares := self.fill(among_only(found, among))) is not None
            ]
            if sets:
                return min(sets, key=lambda one: one[0])[1], level
        if must:
            for card in {one.id: one for cards in found for one in cards}.values():
                if (shares := self.fill(among_only(found, [card]))) is not None:
                    return shares, NOT_CONNECTED
            return None
        shares = self.fill(found)
        return None if shares is None else (shares, NOT_CONNECTED)

    def fill(self, found):
        """The first combination."""
        slots = [at for at, ask in enumerate(self.asks) for _ in range(ask.request.count)]
        self.taken = []
        return list(self.taken) if self._fill(slots, found, 0) else None

    def _fill(self, slots, found, start):
        if len(self.taken) == len(slots):
            return True
        at = slots[len(self.taken)]
        is_same = slots[len(self.taken) + 1 :][:1] == [at]
        for index in range(start, len(found[at])):
            card = found[at][index]
            if self._may_take(self.asks[at], card):
                self.taken.append((self.asks[at], card))
                if self._fill(slots, found, index + 1 if is_same else 0):
                    return True
                self.taken.pop()
        return False

    def _may_take(self, ask, card):
        further = [one.of(its) for one, its in self.taken if its.id == card.id]
        if not has_room(self.state.device_usage, card, ask.of(card), further):
            return False
        return all(self._holds(one, ask, card) for one in ask.constraints)

    def _holds(self, constraint, ask, card):
        others = [
            typed(its, constraint)
            for one, its in self.taken
            if one.claim == ask.claim
            and (not constraint.requests or one.request.name in constraint.requests)
        ]
        mine = typed(card, constraint)
        if constraint.match_attribute is not None:
            return mine is not None and all(one == mine for one in others)
        return mine is not None and mine not in others

    def _connected(self, found, links):
        sets = {}
        for card in (one for cards in found for one in cards):
            values = [link_of(card, LINKS[name]) for name in links]
            if None not in values:
                key = tuple((type(value), value) for value in values)
                sets.setdefault(key, {})[card.id] = card
        return [list(cards.values()) for cards in sets.values()]

    def _rated(self, shares, among):
        rated = [self.rate(ask, card) for ask, card in shares]
        worst = worst_first(key for key, _, _ in rated)
        return worst, sum(score for _, score, _ in rated), len(among), min(t for *_, t in rated)


def among_only(found, among):
    """The candidates that are among these cards."""
    ids = [card.id for card in among]
    return [[card for card in cards if card.id in ids] for cards in found]


def typed(card, constraint):
    """The value that a constraint is about, with its type: 1 is not true."""
    name, driver = constraint.match_attribute or constraint.distinct_attribute, card.id.driver
    published = {names.qualified(key, driver): one for key, one in card.device.attributes.items()}
    return (type(published[name]), published[name]) if name in published else None


def link_of(card, name):
    """By what a card is connected to others."""
    attributes = card.device.attributes
    if name == names.PCIE_ROOT:
        return attributes.get(name)
    return attributes.get(name, attributes.get(names.qualified(name, card.id.driver)))
