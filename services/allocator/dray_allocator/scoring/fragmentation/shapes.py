"""Pods and cards as the score sees them. Amounts are thousandths of a card."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.node_devices import Card
from dray_allocator.devices.selector_cache import SelectorCache

CARD: Final = 1000


@dataclass(frozen=True, slots=True, order=True)
class PodShape:
    """A pod: its cpu, its number of cards, and the thousandths of a card per usable class."""

    cpu_milli: int
    cards: int
    milli: tuple[tuple[str, int], ...] = ()


def class_of(card: Card) -> str:
    """Driver, model and capacities: equal for cards that most pods treat alike."""
    device = card.device
    model = device.attributes.get("model", device.attributes.get(f"{card.id.driver}/model", ""))
    amounts = " ".join(f"{key}={one.value}" for key, one in sorted(device.capacity.items()))
    shared = "" if device.allow_multiple_allocations else " unshared"
    return f"{card.id.driver} {model} {amounts}{shared}"


def taken_of(ask: DeviceRequirements, card: Card) -> int:
    """Thousandths of a card that a request takes: its largest share of a capacity, rounded up."""
    consumed = ask.of(card)
    if consumed is None:
        return 0
    if not card.device.allow_multiple_allocations:
        return CARD
    totals, most = card.totals, 1
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
    """A pod's shape; of several requests the largest of a class counts for all.

    ``examples``: a card of every kind.
    """
    milli: dict[str, int] = {}
    for card in examples:
        if card.fault:
            continue
        most = max((_suited(ask, card, selectors) for ask in asks), default=0)
        if most:
            name = class_of(card)
            milli[name] = max(milli.get(name, 0), most)
    cards = sum(ask.request.count for ask in asks)
    return PodShape(max(cpu_milli, 0), cards, tuple(sorted(milli.items())))


def _suited(ask: DeviceRequirements, card: Card, selectors: SelectorCache) -> int:
    if ask.untolerated(card) is not None or not selectors.matches(ask.selectors, card):
        return 0
    return taken_of(ask, card)
