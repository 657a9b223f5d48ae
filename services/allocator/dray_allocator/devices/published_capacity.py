"""Amounts of capacities as devices publish them."""

from typing import Final

from dray.api.devices import Capacity
from dray.api.quantities import InvalidQuantityError, parse_quantity

MOST_NANO: Final = 10**300
"""More than it counts as this much: columns of numbers hold no larger ones."""


def amount_of(text: str) -> int | None:
    """Billionths of a unit, at most ``MOST_NANO``; None for what is no quantity."""
    try:
        return min(parse_quantity(text).nano, MOST_NANO)
    except InvalidQuantityError:
        return None


def quantities_of(capacity: Capacity) -> tuple[str, ...]:
    """Every quantity that a capacity and its policy name."""
    policy = capacity.policy
    if policy is None:
        return (capacity.value,)
    bounds = (policy.default, policy.minimum, policy.maximum, policy.step)
    return (capacity.value, *policy.valid_values, *(one for one in bounds if one is not None))
