"""CEL's operators on values: 64-bit arithmetic that fails on overflow, ordering, membership."""

import math
from collections.abc import Callable
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library import times
from dray.cel.library.times import Duration, TimeError, Timestamp
from dray.cel.library.values import Uint, Value, as_key, equal, is_among, is_number, no_overload
from dray.cel.syntax.literals import INT_MAX, INT_MIN, UINT_MAX

_OF_TIME: Final = (Duration, Timestamp)
_ORDERED: Final = (int, str, float, bool, bytes, Uint)


def signed(number: int) -> int:
    """``number`` if it fits an int.

    Raises:
        CelEvaluationError: it overflows.
    """
    if not INT_MIN <= number <= INT_MAX:
        raise CelEvaluationError("integer overflow")
    return number


def unsigned(number: int) -> Uint:
    """``number`` if it fits a uint.

    Raises:
        CelEvaluationError: it overflows.
    """
    if not 0 <= number <= UINT_MAX:
        raise CelEvaluationError("unsigned integer overflow")
    return Uint(number)


def add(left: Value, right: Value) -> Value:
    if type(left) is type(right) and type(left) in (str, bytes, list):
        return left + right
    if isinstance(left, _OF_TIME) and isinstance(right, _OF_TIME):
        return _timed(times.add, left, right)
    return _arithmetic("_+_", left, right, int.__add__, float.__add__)


def _subtract(left: Value, right: Value) -> Value:
    if isinstance(left, _OF_TIME) and isinstance(right, _OF_TIME):
        return _timed(times.subtract, left, right)
    return _arithmetic("_-_", left, right, int.__sub__, float.__sub__)


def _multiply(left: Value, right: Value) -> Value:
    return _arithmetic("_*_", left, right, int.__mul__, float.__mul__)


def _divide(left: Value, right: Value) -> Value:
    return _arithmetic("_/_", left, right, _quotient, _float_quotient)


def _modulo(left: Value, right: Value) -> Value:
    return _arithmetic("_%_", left, right, _remainder, None)


def _negate(value: Value) -> Value:
    if type(value) is int:
        return signed(-value)
    if type(value) is float:
        return -value
    if type(value) is Duration:
        return _timed(times.negate, value)
    raise no_overload("-_", value)


def _invert(value: Value) -> bool:
    if type(value) is not bool:
        raise no_overload("!_", value)
    return value is False


def _differs(left: Value, right: Value) -> bool:
    """``left != right``. Unlike with ``==``, values that can't be compared are different, as in
    cel-go."""
    try:
        return not equal(left, right)
    except CelEvaluationError:
        return True


def _contains(needle: Value, container: Value) -> bool:
    """``needle in container``."""
    if isinstance(container, dict):
        if not container:
            return False
        if type(container) is not dict and type(needle) is not str:
            return False  # a map of the device; its keys are text
        return as_key(needle) in container
    if type(container) is list:
        return is_among(needle, container)
    raise no_overload("_in_", needle, container)


def ordering(function: str, test: Callable[[int], bool]) -> Callable[[Value, Value], bool]:
    """The operator that is true if ``test`` is true for the sign of left minus right."""

    def operator(left: Value, right: Value) -> bool:
        kind = type(left)
        if kind is not type(right):
            if not (is_number(left) and is_number(right)):
                raise no_overload(function, left, right)
            if kind is float or type(right) is float:
                left, right = float(left), float(right)  # as inexact as upstream
        elif kind in _OF_TIME:
            left, right = left.nanoseconds, right.nanoseconds
        elif kind not in _ORDERED:
            raise no_overload(function, left, right)
        if left != left or right != right:
            raise CelEvaluationError("NaN values cannot be ordered")
        return test((left > right) - (left < right))

    return operator


def _arithmetic(
    function: str,
    left: Value,
    right: Value,
    whole: Callable[[int, int], int],
    real: Callable[[float, float], float] | None,
) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return signed(whole(left, right))
        if kind is Uint:
            return unsigned(whole(int(left), int(right)))
        if kind is float and real is not None:
            return real(left, right)
    raise no_overload(function, left, right)


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise CelEvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise CelEvaluationError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise CelEvaluationError("integer overflow")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _float_quotient(left: float, right: float) -> float:
    if right != 0 or math.isnan(left):
        return left / right if right != 0 else math.nan
    if left == 0 or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _timed(change: Callable[..., Value], *values: Value) -> Value:
    try:
        return change(*values)
    except TimeError as error:
        raise CelEvaluationError(str(error)) from None


UNARY: Final[dict[str, Callable[[Value], Value]]] = {"-": _negate, "!": _invert}
BINARY: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "+": add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _modulo,
    "==": equal,
    "!=": _differs,
    "in": _contains,
    "<": ordering("_<_", lambda sign: sign < 0),
    "<=": ordering("_<=_", lambda sign: sign <= 0),
    ">": ordering("_>_", lambda sign: sign > 0),
    ">=": ordering("_>=_", lambda sign: sign >= 0),
}
