"""CEL's functions on values, by the name that the checker declares them under."""

from collections.abc import Callable
from typing import Final

from dray.cel import conversions, lists, strings
from dray.cel.errors import CelEvaluationError
from dray.cel.literals import quoted
from dray.cel.semver import Semver, SemverError, parse_semver
from dray.cel.values import (
    NONE,
    Optional,
    TypeValue,
    Value,
    is_among,
    is_number,
    no_overload,
    take,
    type_name,
)
from dray.domain.quantities import NANO, InvalidQuantityError, Quantity, parse_quantity, quantity_of


def _size(value: Value) -> int:
    if type(value) in (str, bytes, list) or isinstance(value, dict):
        return len(value)
    raise no_overload("size", value)


def _quantity(text: Value) -> Quantity:
    take("quantity", (text,), str)
    try:
        return parse_quantity(text)
    except InvalidQuantityError as error:
        raise CelEvaluationError(str(error)) from None


def _is_quantity(text: Value) -> bool:
    take("isQuantity", (text,), str)
    try:
        parse_quantity(text)
    except InvalidQuantityError:
        return False
    return True


def _as_integer(amount: Value) -> int:
    take("asInteger", (amount,), Quantity)
    if not _is_integer(amount):
        raise CelEvaluationError("cannot convert value to integer")
    return int(amount.nano // NANO)


def _is_integer(amount: Value) -> bool:
    take("isInteger", (amount,), Quantity)
    return bool(amount.nano % NANO == 0 and -(2**63) <= amount.nano // NANO < 2**63)


def _of_quantity(function: str, method: Callable[[Quantity], Value]) -> Callable[[Value], Value]:
    def read(amount: Value) -> Value:
        take(function, (amount,), Quantity)
        return method(amount)

    return read


def _sum_of(function: str, sign: int) -> Callable[[Value, Value], Quantity]:
    def change(amount: Value, other: Value) -> Quantity:
        second = quantity_of(other) if type(other) is int else other
        take(function, (amount, second), Quantity, Quantity)
        total: Quantity = amount + second if sign > 0 else amount - second
        return total

    return change


def _compare(left: Value, right: Value) -> int:
    if type(left) is Semver and type(right) is Semver:
        return (left.key() > right.key()) - (left.key() < right.key())
    take("compareTo", (left, right), Quantity, Quantity)
    return int(left.nano > right.nano) - int(left.nano < right.nano)


def _semver(*values: Value) -> Semver:
    normalize = values[1] if len(values) == 2 else False
    take("semver", (values[0], normalize), str, bool)
    try:
        return parse_semver(values[0], normalize=normalize)
    except SemverError as error:
        raise CelEvaluationError(str(error)) from None


def _is_semver(*values: Value) -> bool:
    normalize = values[1] if len(values) == 2 else False
    take("isSemver", (values[0], normalize), str, bool)
    try:
        parse_semver(values[0], normalize=normalize)
    except SemverError:
        return False
    return True


def _part(name: str) -> Callable[[Value], int]:
    def read(version: Value) -> int:
        take(name, (version,), Semver)
        return int(getattr(version, name))

    return read


def _value(optional: Value) -> Value:
    take("value", (optional,), Optional)
    if optional is NONE:
        raise CelEvaluationError("optional.none() dereference")
    return optional.value


def _has_value(optional: Value) -> bool:
    take("hasValue", (optional,), Optional)
    return optional is not NONE


def _non_zero(value: Value) -> Optional:
    is_zero = value is None or (is_number(value) and value == 0) or value is False
    empty = isinstance(value, (str, bytes, list, dict)) and not value
    return NONE if is_zero or empty else Optional(value)


def _contains_all(left: Value, right: Value) -> bool:
    take("sets.contains", (left, right), list, list)
    return all(is_among(item, left) for item in right)


def _intersects(left: Value, right: Value) -> bool:
    take("sets.intersects", (left, right), list, list)
    return any(is_among(item, right) for item in left)


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "size": _size,
    "bool": conversions.to_bool,
    "int": conversions.to_int,
    "uint": conversions.to_uint,
    "double": conversions.to_double,
    "string": conversions.to_string,
    "bytes": lambda value: value if type(value) is bytes else conversions.to_string(value).encode(),
    "dyn": lambda value: value,
    "type": lambda value: TypeValue(type_name(value)),
    "startsWith": strings.of_string("startsWith", str.startswith),
    "endsWith": strings.of_string("endsWith", str.endswith),
    "contains": strings.of_string("contains", str.__contains__),
    "matches": strings.match,
    "find": strings.find,
    "findAll": strings.find_all,
    "charAt": strings.char_at,
    "lowerAscii": strings.in_ascii("lowerAscii", "A", 32),
    "upperAscii": strings.in_ascii("upperAscii", "a", -32),
    "trim": strings.trim,
    "strings.quote": lambda text: quoted(conversions.to_string(text)),
    "indexOf": lambda value, *rest: (lists if type(value) is list else strings).index_of(
        value, *rest
    ),
    "lastIndexOf": lambda value, *rest: (lists if type(value) is list else strings).last_index_of(
        value, *rest
    ),
    "join": strings.join,
    "replace": strings.replace,
    "split": strings.split,
    "substring": strings.substring,
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "sign": _of_quantity("sign", lambda q: (q.nano > 0) - (q.nano < 0)),
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": _of_quantity("asApproximateFloat", lambda q: q.approximate),
    "add": _sum_of("add", 1),
    "sub": _sum_of("sub", -1),
    "compareTo": _compare,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "semver": _semver,
    "isSemver": _is_semver,
    "major": _part("major"),
    "minor": _part("minor"),
    "patch": _part("patch"),
    "optional.of": Optional,
    "optional.ofNonZeroValue": _non_zero,
    "optional.none": lambda: NONE,
    "value": _value,
    "hasValue": _has_value,
    "isSorted": lists.is_sorted,
    "sum": lists.total,
    "min": lists.least,
    "max": lists.greatest,
    "lists.range": lists.numbers_below,
    "slice": lists.cut,
    "flatten": lists.flat,
    "reverse": lists.backwards,
    "distinct": lists.distinct,
    "sort": lists.in_order,
    "sets.contains": _contains_all,
    "sets.equivalent": lambda a, b: _contains_all(a, b) and _contains_all(b, a),
    "sets.intersects": _intersects,
}
"""``or`` and ``orValue`` are the evaluator's: their argument is read only where it is needed."""
