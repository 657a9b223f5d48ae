"""Differences in evaluation from Kubernetes 1.37 on. Its cel-go is three minor versions newer."""

from collections.abc import Callable, Sequence
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.eval.runtime_cost import Charge, charge_of, flattening_cost, tenth, traversal_cost
from dray.cel.eval.runtime_cost import size as size_of
from dray.cel.library.functions import FUNCTIONS, includes
from dray.cel.library.lists import numbers_below
from dray.cel.library.times import minutes_of
from dray.cel.library.values import Value

NEWER: Final = 37
"""The first minor version with the newer cel-go."""
_LONGEST_RANGE: Final = 1_000_000


def function_of(name: str, minor: int) -> Callable[..., Value] | None:
    """The function with this name; None if there is none."""
    if minor >= NEWER and name in _NEWER:
        return _NEWER[name]
    return FUNCTIONS.get(name)


def charge_in(name: str, overload: str | None, minor: int) -> Charge | int:
    """The cost of a call in a minor version."""
    if minor >= NEWER:
        newer = _NEWER_CHARGES.get(overload or "") or _NEWER_CHARGES.get(name)
        if newer is not None:
            return newer
    return charge_of(name, overload)


def _range(end: Value) -> list[Value]:
    if type(end) is int and not 0 <= end <= _LONGEST_RANGE:
        raise CelEvaluationError(f"lists.range: size {end} is not from 0 to {_LONGEST_RANGE}")
    return numbers_below(end)


def _zoned(name: str) -> Callable[..., Value]:
    """A part of a moment in a zone. The minutes of the zone must be valid minutes."""

    def call(*values: Value) -> Value:
        if len(values) == 2 and type(values[1]) is str and not 0 <= minutes_of(values[1]) <= 59:
            raise CelEvaluationError(f"timezone offset minutes out of range [0, 59]: {values[1]}")
        return FUNCTIONS[name](*values)

    return call


def _flattened(values: Sequence[Value], result: Value) -> int:
    """A negative depth counts as 1."""
    depth = values[1] if type(values[1]) is not int or values[1] >= 0 else 1
    return flattening_cost((values[0], depth), result)


_NEWER: Final[dict[str, Callable[..., Value]]] = {
    "includes": lambda value, item: includes(value, item, at_most=None),
    "lists.range": _range,
    **{name: _zoned(name)
       for name in ("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate",
                    "getDayOfWeek", "getHours", "getMinutes", "getSeconds", "getMilliseconds")},
}  # fmt: skip
_NEWER_CHARGES: Final[dict[str, Charge]] = {
    "starts_with_string": lambda values, result: tenth(size_of(values[1])),
    "ends_with_string": lambda values, result: tenth(size_of(values[1])),
    "matches": lambda values, result: tenth(1 + size_of(values[0])) * -(-size_of(values[1]) // 4),
    "includes": lambda values, result: traversal_cost(values[0]),
    "list_flatten_int": _flattened,
}
"""By overload, or by function if all its forms have this cost."""
