"""Pods and cards in the units of the score: thousandths of a card."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.published_devices import Card
from dray_allocator.devices.selector_cache import SelectorCache

CARD: Final = 1000


@dataclass(frozen=True, slots=True, order=True)
class PodShape:
    """A pod: its cpu, its number of cards, and by usable class, the thousandths of a card."""

    cpu_milli: int
    cards: int
    milli: tuple[tuple[str, int], ...] = ()


def class_of(card: Card) -> str:
    """The class of a card: driver, model and capacities."""
    device = card.device
    model = device.attributes.get("model", device.attributes.get(f"{card.id.driver}/model", ""))
    amounts = " ".join(f"{key}={one.value}" for key, one in sorted(device.capacity.items()))
    shared = "" if device.allow_multiple_allocations else " unshared"
    return f"{card.id.driver} {model} {amounts}{shared}"


def consumed_milli(ask: DeviceRequirements, card: Card) -> int:
    """The thousandths of a card that a request consumes: its largest share of a capacity, rounded
    up."""
    consumed = ask.of(card)
    if consumed is None:
        return 0
    if not card.device.allow_multiple_allocations:
        return CARD
    totals, most = card.shape.totals, 1
    for key, amount in consumed.nano.items():
        total = totals.get(key, 0)
        if amount > 0 and total > 0:
            most = max(most, -(-CARD * amount // total))
    return min(most, CARD)


def shape_of(
    cpu_milli: int,
    asks: Sequence[DeviceRequirements],
    examples: Sequence[Card],
    selectors: SelectorCache,
) -> PodShape:
    """A pod's shape. For each class, the largest of its requests counts for all.

    ``examples``: one card of every kind.
    """
    milli: dict[str, int] = {}
    for card in examples:
        if card.shape.fault:
            continue
        most = max((_consumed_if_matching(ask, card, selectors) for ask in asks), default=0)
        if most:
            name = class_of(card)
            milli[name] = max(milli.get(name, 0), most)
    cards = sum(ask.request.count for ask in asks)
    return PodShape(max(cpu_milli, 0), cards, tuple(sorted(milli.items())))


def _consumed_if_matching(ask: DeviceRequirements, card: Card, selectors: SelectorCache) -> int:
    if ask.untolerated(card) is not None or not selectors.matches(ask.selectors, card):
        return 0
    return consumed_milli(ask, card)
