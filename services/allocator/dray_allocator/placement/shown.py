"""What a nearest miss has instead of what is wanted, in words."""

import json
from collections.abc import Iterable, Mapping

from dray.cel.evaluate import ClauseResult
from dray.domain.devices import Capacity
from dray.domain.quantities import Quantity, parse_quantity
from dray_allocator.fit.capacity import amount_of


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
        f"{name} {capacity[name].value}" if name in capacity else f"no {name}"
        for name in sorted(wanted)
    )


def amount(nano: int, like: str) -> str:
    """An amount in billionths, written as ``like`` is; below 0 it counts as nothing."""
    is_binary = amount_of(like) is not None and parse_quantity(like).binary
    return str(Quantity(max(0, nano), binary=is_binary))


def _written(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
