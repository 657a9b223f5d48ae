"""Amounts of capacities as devices publish them."""

from typing import Final

from dray.api.devices import Capacity
from dray.api.quantities import InvalidQuantityError, parse_quantity

MOST_NANO: Final = 10**300
"""Upper limit of an amount, so that a float64 column can hold it."""


def amount_of(text: str) -> int | None:
    """A quantity in billionths of a unit, at most ``MOST_NANO``; None if it can't be parsed."""
    try:
        return min(parse_quantity(text).nano, MOST_NANO)
    except InvalidQuantityError:
        return None


def quantities_of(capacity: Capacity) -> tuple[str, ...]:
    """All quantities of a capacity and its request policy."""
    policy = capacity.policy
    if policy is None:
        return (capacity.value,)
    bounds = (policy.default, policy.minimum, policy.maximum, policy.step)
    return (capacity.value, *policy.valid_values, *(one for one in bounds if one is not None))
