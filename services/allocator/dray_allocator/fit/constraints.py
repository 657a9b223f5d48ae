"""``matchAttribute`` and ``distinctAttribute`` over the devices chosen so far."""

from collections.abc import Sequence
from dataclasses import dataclass

from dray.domain.claims import Constraint
from dray.domain.devices import AttributeValue
from dray_allocator.fit.devices import Card


@dataclass(frozen=True, slots=True)
class Chosen:
    """A device chosen for a request of one of a pod's claims."""

    claim: int
    request: str
    card: Card


def allows(
    constraints: Sequence[Constraint],
    claim: int,
    request: str,
    card: Card,
    chosen: list[Chosen],
) -> bool:
    """Whether ``card`` may join what is chosen. The attribute is needed even on one device."""
    for constraint in constraints:
        if constraint.requests and request not in constraint.requests:
            continue
        others = [
            one.card
            for one in chosen
            if one.claim == claim
            and (not constraint.requests or one.request in constraint.requests)
        ]
        if not _holds(constraint, card, others):
            return False
    return True


def _holds(constraint: Constraint, card: Card, others: list[Card]) -> bool:
    if constraint.match_attribute is not None:
        value = _typed(card, constraint.match_attribute)
        if value is None or any(
            _typed(other, constraint.match_attribute) != value for other in others
        ):
            return False
    if constraint.distinct_attribute is not None:
        value = _typed(card, constraint.distinct_attribute)
        if value is None or any(
            _typed(other, constraint.distinct_attribute) == value for other in others
        ):
            return False
    return True


def _typed(card: Card, name: str) -> tuple[type, AttributeValue] | None:
    """The value with its type: the number 1, the text "1" and true are three values."""
    value = card.attributes.get(name)
    return None if value is None else (type(value), value)
