"""CEL's values in Python, and when two of them are equal.

int, float, str, bytes, bool, None, list and dict stand for themselves. Python holds ``True`` and
1 for the same dict key, CEL does not: keys of type bool are wrapped.
"""

from dataclasses import dataclass
from typing import Any, Final

from dray.cel.errors import CelEvaluationError
from dray.cel.semver import Semver
from dray.domain.quantities import Quantity

Value = Any
"""Any of the values above; CEL is dynamic at this point."""


class Uint(int):
    """An unsigned integer, as in ``8u``."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BoolKey:
    """A bool as the key of a map."""

    value: bool


@dataclass(frozen=True, slots=True)
class Optional:
    """``optional.of(value)``."""

    value: Value


NONE: Final = Optional(None)
"""``optional.none()``, told from ``optional.of(null)`` by identity."""


@dataclass(frozen=True, slots=True)
class TypeValue:
    """What ``type(x)`` gives."""

    name: str


_NAMES: Final[dict[type, str]] = {
    bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", bytes: "bytes",
    type(None): "null_type", list: "list", dict: "map", Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver", Optional: "optional_type", TypeValue: "type",
}  # fmt: skip
_NUMBERS: Final = (int, Uint, float)


def type_name(value: Value) -> str:
    """The name of a value's CEL type."""
    found = _NAMES.get(type(value))
    if found is None:
        found = "map" if isinstance(value, dict) else "kubernetes.DRADevice"
    return found


def is_number(value: Value) -> bool:
    """Whether it is an int, uint or double (a bool is not)."""
    return type(value) in _NUMBERS


def equal(left: Value, right: Value) -> bool:
    """CEL's ``==``: numbers by value across types, other types only with their own.

    Raises:
        CelEvaluationError: a quantity or version on the left of another type (upstream's quirk).
    """
    kind = type(left)
    if kind is type(right):
        if kind is list:
            return len(left) == len(right) and all(map(equal, left, right))
        if kind is Optional:
            both = left is not NONE and right is not NONE
            return equal(left.value, right.value) if both else left is right
        if kind is not dict:
            return bool(left == right)
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(
            key in right and equal(value, right[key]) for key, value in left.items()
        )
    if kind in (Quantity, Semver) and right is not None:
        raise no_overload("_==_", left, right)
    return is_number(left) and is_number(right) and bool(left == right)


def is_among(needle: Value, items: list[Value]) -> bool:
    """Whether one of ``items`` equals ``needle``; what can't be compared is not equal."""
    for item in items:
        try:
            if equal(needle, item):
                return True
        except CelEvaluationError:
            continue
    return False


def as_key(value: Value) -> Value:
    """``value`` as a key of a dict.

    Raises:
        CelEvaluationError: values of that type are no keys.
    """
    kind = type(value)
    if kind is str or kind in _NUMBERS:
        return value
    if kind is bool:
        return BoolKey(value)
    raise CelEvaluationError(f"unsupported key type: {type_name(value)}")


def from_key(key: Value) -> Value:
    """The value that became a key."""
    return key.value if type(key) is BoolKey else key


def no_overload(function: str, *values: Value) -> CelEvaluationError:
    """The error of a function that has no form for the types of ``values``."""
    names = ", ".join(type_name(value) for value in values)
    return CelEvaluationError(f"no such overload: {function}({names})")


def take(function: str, values: tuple[Value, ...], *kinds: type) -> None:
    """Refuse values of other types or another number than ``kinds``.

    Raises:
        CelEvaluationError: no such overload.
    """
    fits = len(values) == len(kinds) and all(
        type(value) is kind for value, kind in zip(values, kinds, strict=True)
    )
    if not fits:
        raise no_overload(function, *values)
