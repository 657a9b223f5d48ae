"""Format requested amounts, and the values of the nearest device."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from dray.api.devices import Capacity, Taint
from dray.api.quantities import (
    Quantity,
    parse_quantity,
    plain_number,
    readable,
    readable_quantity,
    rounded_down,
)
from dray.cel.eval.program import ClauseResult
from dray_allocator.devices.percentages import PHYSICAL, WHOLE
from dray_allocator.devices.published_capacity import amount_of

_HUNDREDTH = WHOLE // 10_000
"""A hundredth of a percent, in billionths."""


def moment(unix_s: float) -> str:
    """A moment as Kubernetes writes it, in UTC."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def values(result: ClauseResult) -> str:
    """The values that a clause read, with names if there are several; empty if it failed."""
    if result.value is None:
        return ""
    found = {text.rpartition(".")[2]: _written(value) for text, value in result.read.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{name} {value}" for name, value in found.items())


def published(wanted: Iterable[str], capacity: Mapping[str, Capacity]) -> str:
    """The published capacities of a device, of those that are ``wanted``."""
    return ", ".join(
        f"{name} {readable_quantity(capacity[name].value)}" if name in capacity else f"no {name}"
        for name in sorted(wanted)
    )


def asked(amounts: Mapping[str, str], percents: Mapping[str, int]) -> str:
    """The requested amounts and percentages, by capacity."""
    texts = {name: readable_quantity(text) for name, text in amounts.items()}
    texts |= {name: percentage(name, percent) for name, percent in percents.items()}
    return ", ".join(f"{name} {text}" for name, text in sorted(texts.items()))


def too_small(asked: str) -> str:
    """The reason for an unused device that has less than ``asked``."""
    return f"too small, or without such a capacity ({asked} asked)"


def untolerated(taint: Taint) -> str:
    """The reason for a device with a taint."""
    return f"device taint {taint.key}={taint.value}:{taint.effect} is not tolerated"


def amount(nano: int, like: str) -> str:
    """Format an amount in billionths; binary if ``like`` is."""
    return readable(nano, binary=_is_binary(like))


def left(nano: int, like: str) -> str:
    """Format how much of a capacity is left, rounded down; 0 for a negative amount."""
    return rounded_down(max(0, nano), binary=_is_binary(like))


def percentage(capacity: str, percent: int) -> str:
    """Format a requested percentage, in billionths of a percent."""
    return f"{plain_number(percent)} % of {PHYSICAL[capacity]}"


def share(nano: int, whole: int) -> str:
    """Format how much of a capacity is left as a percentage, rounded down to hundredths."""
    return f"{plain_number(shared(nano, whole) // _HUNDREDTH * _HUNDREDTH)} %"


def shared(nano: int, whole: int) -> int:
    """The share of ``whole``, in billionths of a percent."""
    return max(0, nano) * WHOLE // max(1, whole)


def _is_binary(text: str) -> bool:
    return amount_of(text) is not None and parse_quantity(text).binary


def _written(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Quantity):
        return readable(value.nano, binary=value.binary)
    return str(value)
