"""Cards that work together well: joined by NVLink, on one NUMA node, under one PCIe root.

Sets that NVLink joins come before all others; of equals those of one NUMA node, then those of one
PCIe root. A set is looked for within each group of a node's cards that are joined in the best way,
then in the next best one, and at last among all of them; of several groups the one whose cards rate
best is taken, of equals the one with the fewest cards to choose from, so that large groups stay
whole.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from dray.domain.devices import AttributeValue
from dray.domain.names import NUMA_NODE, NVLINK_DOMAIN, PCIE_ROOT, qualified
from dray.domain.placement import HARD, NO_TOPOLOGY, Placement
from dray_allocator.fit.devices import Card
from dray_allocator.fit.search import Ask, Candidates, Search, Share
from dray_allocator.placement.preference import Key, cards_key

_NVLINK, _NUMA, _PCIE = range(3)
_WAYS: Final = (
    (_NVLINK, _NUMA, _PCIE),
    (_NVLINK, _NUMA),
    (_NVLINK, _PCIE),
    (_NVLINK,),
    (_NUMA, _PCIE),
    (_NUMA,),
    (_PCIE,),
)
"""What all cards of a set share, the best first."""
APART: Final = len(_WAYS)
"""The grade of sets that share nothing."""
BY_NVLINK: Final = 4
"""Sets of a grade below it are joined by NVLink."""
JOINED: Final = "joined by NVLink, on one NUMA node or under one PCIe root"


class Found(msgspec.Struct, frozen=True, gc=False):
    """A set of cards, and the grade of their joints; 0 is best."""

    shares: tuple[Share, ...]
    grade: int


def concerns(asks: Sequence[Ask], topology: str) -> bool:
    """Whether it matters to these requests together how cards are joined."""
    is_one = len(asks) == 1 and asks[0].request.count == 1
    return bool(asks) and not is_one and topology != NO_TOPOLOGY


def must_be_joined(asks: Sequence[Ask], placement: Placement) -> bool:
    """Whether only cards that are joined will do."""
    return placement.topology == HARD and concerns(asks, HARD)


def has_joints(cards: Sequence[Card]) -> bool:
    """Whether any of these cards says how it is joined to others."""
    return any(joint is not None for card in cards for joint in joints(card))


def is_linked(card: Card) -> bool:
    """Whether NVLink joins the card to another one."""
    return _of_driver(card, NVLINK_DOMAIN) is not None


def joints(card: Card) -> tuple[AttributeValue | None, ...]:
    """What is equal for cards that are joined: by NVLink, by NUMA node, by PCIe root."""
    nvlink, numa = _of_driver(card, NVLINK_DOMAIN), _of_driver(card, NUMA_NODE)
    return nvlink, numa, card.device.attributes.get(PCIE_ROOT)


def _of_driver(card: Card, name: str) -> AttributeValue | None:
    """An attribute in the driver's own domain, which a slice may leave out."""
    attributes = card.device.attributes
    if name in attributes:
        return attributes[name]
    return attributes.get(qualified(name, card.id.driver))


def best_set(search: Search, asks: Sequence[Ask], found: Candidates, topology: str) -> Found | None:
    """The best set of candidates for all asks; None where there is none, or with ``hard`` none
    that is joined, or where the tries ran out before one was found. With ``hard`` shares of a
    single card are joined too."""
    steps = search.tries.node
    for grade, way in enumerate(_WAYS):
        sets = [
            (_key(search, shares, found, group), shares)
            for group in _groups(found, way)
            if (shares := search.fill(asks, _among(found, group))) is not None
        ]
        if sets:
            return Found(min(sets, key=lambda one: one[0])[1], grade)
    if topology == HARD:
        cards = dict.fromkeys(card.index for one in found.values() for card, _ in one)
        alone = (search.fill(asks, _among(found, {card: None})) for card in cards)
        return next((Found(shares, APART) for shares in alone if shares is not None), None)
    search.tries.at_most(steps)
    shares = search.fill(asks, found)
    return None if shares is None else Found(shares, APART)


def _groups(found: Candidates, way: Sequence[int]) -> Iterator[dict[int, None]]:
    """Cards, by their index on the node, that are joined in a way."""
    groups: dict[tuple[tuple[type, AttributeValue], ...], dict[int, None]] = {}
    for candidates in found.values():
        for card, _ in candidates:
            every = joints(card)
            # With their types, as constraints compare: 1 is not true.
            shared = tuple((type(one), one) for at in way if (one := every[at]) is not None)
            if len(shared) == len(way):
                groups.setdefault(shared, {})[card.index] = None
    return iter(groups.values())


def _among(found: Candidates, group: dict[int, None]) -> Candidates:
    return {
        ask: [one for one in candidates if one[0].index in group]
        for ask, candidates in found.items()
    }


def _key(
    search: Search, shares: Sequence[Share], found: Candidates, group: dict[int, None]
) -> tuple[tuple[Key, ...], int, int, int]:
    rated = [search.preference(share.ask, share.card) for share in shares]
    worst = cards_key(key for key, _, _ in rated)
    return worst, sum(rank for _, rank, _ in rated), len(group), min(tie for _, _, tie in rated)
