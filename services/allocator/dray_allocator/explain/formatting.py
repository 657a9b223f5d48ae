"""What is wanted, and what a nearest miss has instead, in words."""

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal

from dray.api.devices import Capacity, Taint
from dray.api.quantities import Quantity, parse_quantity, readable, rounded_down
from dray.cel.eval.program import ClauseResult
from dray_allocator.devices.percentages import PHYSICAL, WHOLE
from dray_allocator.devices.published_capacity import amount_of

_HUNDREDTH = WHOLE // 10_000
"""Of a percent, in billionths of one."""


def values(result: ClauseResult) -> str:
    """What a clause read; by name where it read several things, nothing where it failed."""
    if result.value is None:
        return ""
    found = {text.rpartition(".")[2]: _written(value) for text, value in result.read.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{name} {value}" for name, value in found.items())


def published(wanted: Iterable[str], capacity: Mapping[str, Capacity]) -> str:
    """What a device has in all of the capacities that are ``wanted``."""
    return ", ".join(
        f"{name} {quantity(capacity[name].value)}" if name in capacity else f"no {name}"
        for name in sorted(wanted)
    )


def asked(amounts: Mapping[str, str], percents: Mapping[str, int]) -> str:
    """All that is taken of a device, by capacity."""
    told = {name: quantity(text) for name, text in amounts.items()}
    told |= {name: percentage(name, percent) for name, percent in percents.items()}
    return ", ".join(f"{name} {text}" for name, text in sorted(told.items()))


def too_small(asked: str) -> str:
    """What is wrong with a device that has less than ``asked`` though nobody uses it."""
    return f"too small, or without such a capacity ({asked} asked)"


def untolerated(taint: Taint) -> str:
    """What is wrong with a device that has the taint."""
    return f"device taint {taint.key}={taint.value}:{taint.effect} is not tolerated"


def quantity(text: str) -> str:
    """An amount that somebody wrote, as all are written here; as it is where it is none."""
    return text if amount_of(text) is None else amount(parse_quantity(text).nano, text)


def amount(nano: int, like: str) -> str:
    """An amount in billionths, binary where ``like`` is."""
    return readable(nano, binary=_is_binary(like))


def left(nano: int, like: str) -> str:
    """What is left of a capacity, rounded down; below 0 it counts as nothing."""
    return rounded_down(max(0, nano), binary=_is_binary(like))


def percentage(capacity: str, percent: int) -> str:
    """What is taken of a capacity, from billionths of a percent: another amount on each model."""
    return f"{_decimal(percent)} % of {PHYSICAL[capacity]}"


def share(nano: int, whole: int) -> str:
    """The same of what a device has left of all that it has, rounded down to hundredths."""
    return f"{_decimal(shared(nano, whole) // _HUNDREDTH * _HUNDREDTH)} %"


def shared(nano: int, whole: int) -> int:
    """Billionths of a percent."""
    return max(0, nano) * WHOLE // max(1, whole)


def _is_binary(text: str) -> bool:
    return amount_of(text) is not None and parse_quantity(text).binary


def _decimal(nano: int) -> str:
    return f"{Decimal(nano).scaleb(-9).normalize():f}"


def _written(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Quantity):
        return readable(value.nano, binary=value.binary)
    return str(value)
