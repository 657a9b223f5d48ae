"""CEL's values in Python, and their equality.

int, float, str, bytes, bool, None, list and dict stand for themselves. ``True`` and 1 are the same
dict key in Python but not in CEL, so keys of type bool are wrapped.
"""

from dataclasses import dataclass
from typing import Any, Final

from dray.api.quantities import Quantity
from dray.cel.errors import CelEvaluationError
from dray.cel.library.named_formats import NamedFormat
from dray.cel.library.network import Cidr, Ip
from dray.cel.library.semver import Semver
from dray.cel.library.times import Duration, Timestamp
from dray.cel.library.urls import Url
from dray.cel.limits import StoppedError


@dataclass(frozen=True, slots=True)
class Optional:
    """``optional.of(value)``."""

    value: Any


NONE: Final = Optional(None)
"""``optional.none()``, distinct from ``optional.of(null)`` by identity."""


Value = Any
"""Any of the values above; CEL is dynamic at this point."""


class Uint(int):
    """An unsigned integer, as in ``8u``."""

    __slots__ = ()


class Sum(Quantity):
    """The result of ``add`` and ``sub``: a quantity that ``==`` accepts only on its left side.

    Kubernetes returns a pointer from them. Its equality treats that as a value of another type.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BoolKey:
    """A bool as the key of a map."""

    value: bool


class KeyById:
    """A value, such as a list or a quantity, as a map key that only the same object finds."""

    __slots__ = ("value",)

    def __init__(self, value: "Value") -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyById) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """The result of ``type(x)``."""

    name: str


_NAMES: Final[dict[type, str]] = {
    bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", bytes: "bytes",
    type(None): "null_type", list: "list", dict: "map", Quantity: "kubernetes.Quantity",
    Sum: "kubernetes.Quantity", Semver: "kubernetes.Semver", Optional: "optional_type",
    TypeValue: "type", Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration", Ip: "net.IP", Cidr: "net.CIDR",
    Url: "kubernetes.URL", NamedFormat: "kubernetes.NamedFormat",
}  # fmt: skip
_NUMBERS: Final = (int, Uint, float)
QUANTITIES: Final = (Quantity, Sum)
_OF_KUBERNETES: Final = frozenset((Quantity, Sum, Semver, Ip, Cidr, Url, NamedFormat))
"""Types for which comparison with another type is an error, not false."""
_UNHASHABLE: Final = (bytes, Semver, NamedFormat)
_HASHED: Final = (type(None), Duration, Timestamp, Ip, Cidr, TypeValue)
_LOST: Final = frozenset((Quantity, Sum, Semver, Ip, Cidr, Url))


class Broken:
    """The content of an optional that can't be read any more."""

    __slots__ = ()


BROKEN: Final = Broken()
_ZEROS: Final = (Duration(0), Timestamp(-62135596800 * 10**9))
"""Go's zero values. The zero timestamp is the first moment of the year 1."""


def type_name(value: Value) -> str:
    """The name of a value's CEL type."""
    found = _NAMES.get(type(value))
    return found if found is not None else "map"


def is_number(value: Value) -> bool:
    """Whether it is an int, uint or double (a bool is not)."""
    return type(value) in _NUMBERS


def is_zero(value: Value) -> bool:
    """Whether ``optional.ofNonZeroValue`` treats it as zero."""
    if value is None or value is False:
        return True
    if is_number(value):
        return bool(value == 0)
    if isinstance(value, (str, bytes, list, dict)):
        return not value
    return isinstance(value, (Duration, Timestamp)) and value in _ZEROS


def equal(left: Value, right: Value) -> bool:
    """CEL's ``==``: numbers are compared by value across types, others only within their type.

    Raises:
        CelEvaluationError: the left value is a quantity, version, address, URL or format, and the
            right one has another type (a quirk of upstream).
    """
    kind = type(left)
    if kind in _OF_KUBERNETES and right is not None:
        if type(right) is (Quantity if kind is Sum else kind) and kind is not Sum:
            return bool(left == right)
        if kind is Sum and type(right) is Quantity:
            return bool(left.nano == right.nano)
        raise no_overload("_==_", left, right)
    if left is BROKEN or right is BROKEN:
        raise CelEvaluationError("unsupported conversion to ref.Val")
    if kind is type(right):
        if kind is list:
            return len(left) == len(right) and not any(map(_differ, left, right))
        if kind is Optional:
            both = left is not NONE and right is not NONE
            return equal(left.value, right.value) if both else left is right
        if not isinstance(left, dict):
            return bool(left == right)
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and not any(
            key not in right or _differ(value, right[key]) for key, value in left.items()
        )
    if not (is_number(left) and is_number(right)):
        return False
    if kind is float or type(right) is float:
        return float(left) == float(right)  # as inexact as upstream
    return bool(left == right)


def _differ(left: Value, right: Value) -> bool:
    """Whether two elements certainly differ. As in Go, this is false if they can't be compared."""
    try:
        return not equal(left, right)
    except CelEvaluationError:
        return False


def is_among(needle: Value, items: list[Value]) -> bool:
    """Whether one of ``items`` equals ``needle``. Items that can't be compared are not equal."""
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
        StoppedError: Go can't hash it, which ends the evaluation.
    """
    kind = type(value)
    if kind is str or kind in _NUMBERS:
        return value
    if kind is bool:
        return BoolKey(value)
    if kind in _UNHASHABLE:
        raise StoppedError(f"internal error: hash of unhashable type {type_name(value)}")
    return value if kind in _HASHED else KeyById(value)


def as_qualifier(value: Value) -> Value:
    """``value`` as the key for looking up an element.

    Raises:
        CelEvaluationError: values of that type are not keys.
    """
    kind = type(value)
    if kind is str or kind in _NUMBERS:
        return value
    if kind is bool:
        return BoolKey(value)
    raise CelEvaluationError(f"invalid qualifier type: {type_name(value)}")


def from_key(key: Value) -> Value:
    """The value that became a key."""
    return key.value if type(key) in (BoolKey, KeyById) else key


def rewrapped(optional: Optional) -> Optional:
    """An optional after it has passed through a variable or a ternary, where upstream unwraps it.

    A value of a type that only Kubernetes knows is lost, a type becomes its name, and nested
    optionals become one optional.
    """
    inner = optional.value
    while type(inner) is Optional:
        inner = inner.value
    if type(inner) in _LOST:
        return Optional(BROKEN)
    return Optional(inner.name if type(inner) is TypeValue else inner)


def no_overload(function: str, *values: Value) -> CelEvaluationError:
    """The error of a function without a form for the types of ``values``."""
    names = ", ".join(type_name(value) for value in values)
    return CelEvaluationError(f"no such overload: {function}({names})")


def take(function: str, values: tuple[Value, ...], *kinds: type) -> None:
    """Refuse values whose number or types differ from ``kinds``.

    Raises:
        CelEvaluationError: no such overload.
    """
    if len(values) != len(kinds) or tuple(map(type, values)) != kinds:
        raise no_overload(function, *values)
