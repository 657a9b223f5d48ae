"""Kubernetes' quantity library. Texts are read as ``resource.ParseQuantity`` reads them."""

import re
from collections.abc import Callable
from typing import Final

from dray.api.quantities import INT64, NANO, Quantity, quantity_of, written
from dray.cel.errors import CelEvaluationError
from dray.cel.library.semver import Semver
from dray.cel.library.semver_functions import compare_versions
from dray.cel.library.values import QUANTITIES, Sum, Value, no_overload, take
from dray.cel.limits import StoppedError

_FORM: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>(?:[eE][+-]?[0-9]{1,18}|[KMGTPE]i|[numkMGTPE])?)"
)
_MOST_DIGITS: Final = 100_000
"""Limit for amounts with an exponent: Go keeps the exponent and fails when it compares them."""
_LONGEST: Final = 4096
_MOST_BINARY: Final = INT64[-1] * NANO
"""Upstream's limit for amounts with a binary suffix. Other amounts do not have it."""


def quantity(text: Value) -> Quantity:
    """``quantity(text)``. As in Go's parser, a missing number is 0: ``Ki`` is a quantity."""
    take("quantity", (text,), str)
    match = _matched(text)
    if match is None:
        raise CelEvaluationError(
            f"{text[:64]!r} is not a quantity: quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    suffix = match["suffix"]
    if len(suffix) > 2 and abs(int(suffix[1:])) > _MOST_DIGITS:
        raise StoppedError
    found = written(match["sign"] == "-", match["whole"], match["fraction"] or "", suffix)
    if found.binary and abs(found.nano) > _MOST_BINARY:
        return Quantity(_MOST_BINARY if found.nano > 0 else -_MOST_BINARY, True, 0, is_small=False)
    return found


def _is_quantity(text: Value) -> bool:
    """``isQuantity(text)``."""
    take("isQuantity", (text,), str)
    return _matched(text) is not None


def _matched(text: str) -> re.Match[str] | None:
    return _FORM.fullmatch(text) if 0 < len(text) <= _LONGEST else None


def _as_integer(amount: Quantity) -> int:
    found = amount.integer
    if found is None:
        raise CelEvaluationError("cannot convert value to integer")
    return found


def _of_one(function: str, read: Callable[[Quantity], Value]) -> Callable[[Value], Value]:
    def call(amount: Value) -> Value:
        if type(amount) not in QUANTITIES:
            raise no_overload(function, amount)
        return read(amount)

    return call


def _changed(
    function: str, change: Callable[[Quantity, Quantity], Quantity]
) -> Callable[[Value, Value], Sum]:
    def call(amount: Value, other: Value) -> Sum:
        second = quantity_of(other) if type(other) is int else other
        if type(amount) not in QUANTITIES or type(second) not in QUANTITIES:
            raise no_overload(function, amount, other)
        found = change(amount, second)
        return Sum(found.nano, found.binary, found.exponent, found.is_small)

    return call


def _difference(left: Quantity, right: Quantity) -> Quantity:
    """Left minus right. Go's ``Sub`` adds the opposite; an unscaled smallest int64 is its own
    opposite."""
    is_own_opposite = right.is_small and left.is_small and right.unscaled == INT64[0]
    if is_own_opposite and (left.exponent >= right.exponent or left.nano == 0):
        wrapped = left + right
        if wrapped.is_small:
            return wrapped
    return left - right


def compare(left: Value, right: Value) -> int:
    """``left.compareTo(right)`` for quantities and versions: -1, 0 or 1."""
    if type(left) is Semver:
        return compare_versions(left, right)
    if type(left) not in QUANTITIES or type(right) not in QUANTITIES:
        raise no_overload("compareTo", left, right)
    return int(left.nano > right.nano) - int(left.nano < right.nano)


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "quantity": quantity,
    "isQuantity": _is_quantity,
    "sign": _of_one("sign", lambda q: (q.nano > 0) - (q.nano < 0)),
    "isInteger": _of_one("isInteger", lambda q: q.integer is not None),
    "asInteger": _of_one("asInteger", _as_integer),
    "asApproximateFloat": _of_one("asApproximateFloat", lambda q: q.approximate),
    "add": _changed("add", lambda left, right: left + right),
    "sub": _changed("sub", _difference),
    "compareTo": compare,
    "isGreaterThan": lambda left, right: compare(left, right) > 0,
    "isLessThan": lambda left, right: compare(left, right) < 0,
}
