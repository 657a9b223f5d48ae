"""CEL's operators on values: 64-bit arithmetic that fails on overflow, ordering, membership."""

import math
from collections.abc import Callable
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.literals import INT_MAX, INT_MIN, UINT_MAX
from dray.cel.values import (
    NONE,
    Optional,
    Uint,
    Value,
    as_key,
    equal,
    is_among,
    is_number,
    no_overload,
)


def signed(number: int) -> int:
    """``number``, if it fits an int.

    Raises:
        CelEvaluationError: it overflows.
    """
    if not INT_MIN <= number <= INT_MAX:
        raise CelEvaluationError("integer overflow")
    return number


def unsigned(number: int) -> Uint:
    """``number``, if it fits a uint.

    Raises:
        CelEvaluationError: it overflows.
    """
    if not 0 <= number <= UINT_MAX:
        raise CelEvaluationError("unsigned integer overflow")
    return Uint(number)


def add(left: Value, right: Value) -> Value:
    if type(left) is type(right) and type(left) in (str, bytes, list):
        return left + right
    return _arithmetic("_+_", left, right, int.__add__, float.__add__)


def subtract(left: Value, right: Value) -> Value:
    return _arithmetic("_-_", left, right, int.__sub__, float.__sub__)


def multiply(left: Value, right: Value) -> Value:
    return _arithmetic("_*_", left, right, int.__mul__, float.__mul__)


def divide(left: Value, right: Value) -> Value:
    return _arithmetic("_/_", left, right, _quotient, _float_quotient)


def modulo(left: Value, right: Value) -> Value:
    return _arithmetic("_%_", left, right, _remainder, None)


def negate(value: Value) -> Value:
    if type(value) is int:
        return signed(-value)
    if type(value) is float:
        return -value
    raise no_overload("-_", value)


def invert(value: Value) -> bool:
    if type(value) is not bool:
        raise no_overload("!_", value)
    return value is False


def differs(left: Value, right: Value) -> bool:
    """``left != right``; unlike ``==``, values that can't be compared differ, as in cel-go."""
    try:
        return not equal(left, right)
    except CelEvaluationError:
        return True


def contains(needle: Value, container: Value) -> bool:
    """``needle in container``."""
    if isinstance(container, dict):
        return as_key(needle) in container
    if type(container) is list:
        return is_among(needle, container)
    raise no_overload("_in_", needle, container)


def ordering(function: str, test: Callable[[int], bool]) -> Callable[[Value, Value], bool]:
    """The operator that holds where ``test`` holds for the sign of left minus right."""

    def operator(left: Value, right: Value) -> bool:
        kind = type(left)
        same = kind is type(right) and kind in (int, str, float, bool, bytes, Uint)
        if not same and not (is_number(left) and is_number(right)):
            raise no_overload(function, left, right)
        if kind is str and not (left.isascii() and right.isascii()):
            left, right = left.encode(), right.encode()
        if kind is float and (math.isnan(left) or math.isnan(right)):
            return False
        return test((left > right) - (left < right))

    return operator


def index(operand: Value, key: Value) -> Value:
    """``operand[key]``.

    Raises:
        CelEvaluationError: no such key, or beyond the list's end.
    """
    if isinstance(operand, dict):
        try:
            return operand[as_key(key)]
        except KeyError:
            raise CelEvaluationError(f"no such key: {key}") from None
    if type(operand) is list:
        at = _list_index(key)
        if not 0 <= at < len(operand):
            raise CelEvaluationError(f"index out of bounds: {at}")
        return operand[at]
    raise no_overload("_[_]", operand, key)


def find(operand: Value, key: Value) -> Optional:
    """``operand[?key]``: none where there is no such key, and of what has no keys at all."""
    if type(operand) is Optional:
        return NONE if operand is NONE else find(operand.value, key)
    if isinstance(operand, dict):
        try:
            return Optional(operand[as_key(key)])
        except KeyError:
            return NONE
    if type(operand) is list:
        at = _list_index(key)
        return Optional(operand[at]) if 0 <= at < len(operand) else NONE
    return NONE


def _list_index(key: Value) -> int:
    if is_number(key) and key == int(key):
        return int(key)
    raise CelEvaluationError(f"unsupported index type or value: {key!r}")


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


UNARY: Final[dict[str, Callable[[Value], Value]]] = {"-": negate, "!": invert}
BINARY: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": modulo,
    "==": equal,
    "!=": differs,
    "in": contains,
    "<": ordering("_<_", lambda sign: sign < 0),
    "<=": ordering("_<=_", lambda sign: sign <= 0),
    ">": ordering("_>_", lambda sign: sign > 0),
    ">=": ordering("_>=_", lambda sign: sign >= 0),
}
