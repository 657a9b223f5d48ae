"""How much of a shared device a request consumes (KEP-5075, ``requestPolicy``).

The rules are those of Kubernetes 1.36's allocator: keys equal the published ones byte for
byte, a request is rounded up to what the policy admits, and a capacity that is not asked
for consumes the policy's default, or all of it where there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dray.domain.devices import Capacity, RequestPolicy
from dray.domain.quantities import InvalidQuantityError, Quantity, parse_quantity

MOST_NANO: Final = 10**300
"""More than it counts as this much: columns of numbers hold no larger ones."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """What one share takes: billionths of a unit to count with, and text to write."""

    nano: Mapping[str, int]
    text: dict[str, str]
    """Not to be changed: whoever takes as much has the same one."""


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


def consumption(asked: Mapping[str, str], published: Mapping[str, Capacity]) -> Consumption | None:
    """What ``asked`` takes of a shared device; None where its policy admits no such amount."""
    if any(key not in published for key in asked):
        return None
    nano: dict[str, int] = {}
    text: dict[str, str] = {}
    for key, capacity in published.items():
        amount = _amount(asked.get(key), capacity)
        if amount is None:
            return None
        nano[key] = amount.nano
        text[key] = str(amount)
    return Consumption(nano, text)


def admits_whole(asked: Mapping[str, str], published: Mapping[str, Capacity]) -> bool:
    """Whether a device that is not shared is large enough for ``asked``."""
    return all(
        key in published and parse_quantity(text) <= parse_quantity(published[key].value)
        for key, text in asked.items()
    )


def _amount(asked: str | None, capacity: Capacity) -> Quantity | None:
    policy = capacity.policy
    if asked is None:
        default = policy.default if policy else None
        return parse_quantity(capacity.value if default is None else default)
    wanted = parse_quantity(asked)
    return wanted if policy is None else _rounded(wanted, policy)


def _rounded(wanted: Quantity, policy: RequestPolicy) -> Quantity | None:
    if policy.valid_values:
        valid = (parse_quantity(value) for value in policy.valid_values)
        return min((value for value in valid if value >= wanted), default=None)
    minimum = parse_quantity(policy.minimum or "0")
    rounded = max(wanted, minimum)
    if policy.step is not None and wanted > minimum:
        rounded = _stepped(wanted, minimum, parse_quantity(policy.step))
    if policy.maximum is not None and rounded > parse_quantity(policy.maximum):
        return None
    return rounded


def _stepped(wanted: Quantity, minimum: Quantity, step: Quantity) -> Quantity:
    """``minimum + k * step`` in whole units, as Kubernetes rounds (``Value()``)."""
    width = max(1, step.value)
    steps = -(-(wanted.value - minimum.value) // width)
    return Quantity((minimum.value + steps * width) * 10**9, binary=True)
