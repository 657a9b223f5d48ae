"""CEL's functions on values, by the name that the checker declares them under."""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.literals import quoted
from dray.cel.operators import signed, unsigned
from dray.cel.patterns import PatternError, all_in, found_in
from dray.cel.semver import Semver, SemverError, parse_semver
from dray.cel.values import (
    NONE,
    Optional,
    TypeValue,
    Uint,
    Value,
    equal,
    is_number,
    no_overload,
    type_name,
)
from dray.domain.quantities import NANO, InvalidQuantityError, Quantity, parse_quantity, quantity_of

_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")


def _take(function: str, values: tuple[Value, ...], *kinds: type) -> None:
    """Refuse values of other types than ``kinds``, which may be fewer (the rest is optional)."""
    fits = len(values) == len(kinds) and all(
        type(value) is kind for value, kind in zip(values, kinds, strict=True)
    )
    if not fits:
        raise no_overload(function, *values)


def _size(value: Value) -> int:
    if type(value) in (str, bytes, list) or isinstance(value, dict):
        return len(value)
    raise no_overload("size", value)


# Conversions.


def _to_bool(value: Value) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and value in _TRUE + _FALSE:
        return value in _TRUE
    raise _conversion(value, "bool")


def _to_int(value: Value) -> int:
    match value:
        case bool():
            raise _conversion(value, "int")
        case int():
            return signed(int(value))
        case float() if -(2.0**63) < value < 2.0**63:
            return int(value)
        case float():
            raise CelEvaluationError("integer overflow")
        case str() if re.fullmatch(r"[+-]?[0-9]{1,30}", value):
            return signed(int(value))
        case _:
            raise _conversion(value, "int")


def _to_uint(value: Value) -> Uint:
    match value:
        case bool():
            raise _conversion(value, "uint")
        case int():
            return unsigned(value)
        case float() if 0 <= value < 2.0**64:
            return Uint(int(value))
        case float():
            raise CelEvaluationError("unsigned integer overflow")
        case str() if re.fullmatch(r"[0-9]{1,30}", value):
            return unsigned(int(value))
        case _:
            raise _conversion(value, "uint")


def _to_double(value: Value) -> float:
    if is_number(value):
        return float(value)
    decimal = r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    if type(value) is str and re.fullmatch(decimal + r"|(?i:inf|infinity|nan))", value):
        return float(value)
    raise _conversion(value, "double")


def _to_string(value: Value) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return _shortest(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise CelEvaluationError("invalid UTF-8 in bytes, cannot convert") from None
        case _:
            raise _conversion(value, "string")


def _shortest(value: float) -> str:
    """The shortest digits that read back, with an exponent where Go's ``%g`` writes one."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    number = Decimal(repr(value)).normalize()
    sign, digits, _ = number.as_tuple()
    exponent = number.adjusted()
    if -4 <= exponent < 6:
        return f"{number:f}"
    first, rest = digits[0], "".join(map(str, digits[1:]))
    mantissa = f"{'-' if sign else ''}{first}" + (f".{rest}" if rest else "")
    return f"{mantissa}e{'+' if exponent >= 0 else '-'}{abs(exponent):02d}"


def _conversion(value: Value, wanted: str) -> CelEvaluationError:
    return CelEvaluationError(f"type conversion error from '{type_name(value)}' to '{wanted}'")


# Strings.


def _match(*values: Value) -> bool:
    _take("matches", values, str, str)
    try:
        return found_in(values[0], values[1])
    except PatternError as error:
        raise CelEvaluationError(str(error)) from None


def _find_all(*values: Value) -> list[str]:
    limit = values[2] if len(values) == 3 else -1
    _take("findAll", (*values[:2], limit), str, str, int)
    try:
        found = list(all_in(values[0], values[1]))
    except PatternError as error:
        raise CelEvaluationError(str(error)) from None
    return found if limit < 0 else found[:limit]


def _find(*values: Value) -> str:
    found = _find_all(*values)
    return found[0] if found else ""


def _char_at(text: Value, at: Value) -> str:
    _take("charAt", (text, at), str, int)
    if not 0 <= at <= len(text):
        raise CelEvaluationError(f"index out of range: {at}")
    return str(text[at : at + 1])


def _index_of(*values: Value) -> int:
    if type(values[0]) is list and len(values) == 2:
        return next((i for i, item in enumerate(values[0]) if equal(item, values[1])), -1)
    start = values[2] if len(values) == 3 else 0
    _take("indexOf", (*values[:2], start), str, str, int)
    if not values[1]:
        return int(start)
    if not 0 <= start <= len(values[0]):
        raise CelEvaluationError(f"index out of range: {start}")
    return int(values[0].find(values[1], start))


def _last_index_of(*values: Value) -> int:
    if type(values[0]) is list and len(values) == 2:
        found = [i for i, item in enumerate(values[0]) if equal(item, values[1])]
        return found[-1] if found else -1
    _take("lastIndexOf", values, *((str, str, int)[: len(values)]))
    text, part = values[0], values[1]
    if len(values) == 2:
        return int(text.rfind(part))
    if not part:
        return int(values[2])
    if not 0 <= values[2] <= len(text):
        raise CelEvaluationError(f"index out of range: {values[2]}")
    return int(text.rfind(part, 0, values[2] + len(part)))


def _join(*values: Value) -> str:
    separator = values[1] if len(values) == 2 else ""
    _take("join", (values[0], separator), list, str)
    for item in values[0]:
        _take("join", (item,), str)
    return str(separator.join(values[0]))


def _replace(*values: Value) -> str:
    limit = values[3] if len(values) == 4 else -1
    _take("replace", (*values[:3], limit), str, str, str, int)
    return str(values[0].replace(values[1], values[2], max(limit, -1)))


def _split(*values: Value) -> list[str]:
    limit = values[2] if len(values) == 3 else -1
    _take("split", (*values[:2], limit), str, str, int)
    if limit == 0:
        return []
    if not values[1]:
        parts = list(values[0])
        return parts if limit < 0 or limit >= len(parts) else [
            *parts[: limit - 1], "".join(parts[limit - 1 :])]  # fmt: skip
    return list(values[0].split(values[1], limit - 1 if limit > 0 else -1))


def _substring(*values: Value) -> str:
    end = values[2] if len(values) == 3 else len(values[0])
    _take("substring", (*values[:2], end), str, int, int)
    start = values[1]
    if not 0 <= start <= len(values[0]) or not 0 <= end <= len(values[0]):
        raise CelEvaluationError(f"index out of range: {start}")
    if start > end:
        raise CelEvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return str(values[0][start:end])


def _ascii(function: str, first: str, offset: int) -> Callable[[Value], str]:
    table = {ord(first) + i: ord(first) + i + offset for i in range(26)}

    def change(text: Value) -> str:
        _take(function, (text,), str)
        return str(text.translate(table))

    return change


def _of_string(function: str, method: Callable[[str, str], bool]) -> Callable[..., bool]:
    def test(*values: Value) -> bool:
        _take(function, values, str, str)
        return method(values[0], values[1])

    return test


def _trim(text: Value) -> str:
    _take("trim", (text,), str)
    return str(text.strip())


# Quantities and versions.


def _quantity(text: Value) -> Quantity:
    _take("quantity", (text,), str)
    try:
        return parse_quantity(text)
    except InvalidQuantityError as error:
        raise CelEvaluationError(str(error)) from None


def _is_quantity(text: Value) -> bool:
    _take("isQuantity", (text,), str)
    try:
        parse_quantity(text)
    except InvalidQuantityError:
        return False
    return True


def _as_integer(amount: Value) -> int:
    _take("asInteger", (amount,), Quantity)
    if not _is_integer(amount):
        raise CelEvaluationError("cannot convert value to integer")
    return int(amount.nano // NANO)


def _is_integer(amount: Value) -> bool:
    _take("isInteger", (amount,), Quantity)
    return bool(amount.nano % NANO == 0 and -(2**63) <= amount.nano // NANO < 2**63)


def _of_quantity(function: str, method: Callable[[Quantity], Value]) -> Callable[[Value], Value]:
    def read(amount: Value) -> Value:
        _take(function, (amount,), Quantity)
        return method(amount)

    return read


def _sum_of(function: str, sign: int) -> Callable[[Value, Value], Quantity]:
    def change(amount: Value, other: Value) -> Quantity:
        second = quantity_of(other) if type(other) is int else other
        _take(function, (amount, second), Quantity, Quantity)
        total: Quantity = amount + second if sign > 0 else amount - second
        return total

    return change


def _compare(left: Value, right: Value) -> int:
    if type(left) is Semver and type(right) is Semver:
        return (left.key() > right.key()) - (left.key() < right.key())
    _take("compareTo", (left, right), Quantity, Quantity)
    return int(left.nano > right.nano) - int(left.nano < right.nano)


def _semver(*values: Value) -> Semver:
    normalize = values[1] if len(values) == 2 else False
    _take("semver", (values[0], normalize), str, bool)
    try:
        return parse_semver(values[0], normalize=normalize)
    except SemverError as error:
        raise CelEvaluationError(str(error)) from None


def _is_semver(*values: Value) -> bool:
    normalize = values[1] if len(values) == 2 else False
    _take("isSemver", (values[0], normalize), str, bool)
    try:
        parse_semver(values[0], normalize=normalize)
    except SemverError:
        return False
    return True


def _part(name: str) -> Callable[[Value], int]:
    def read(version: Value) -> int:
        _take(name, (version,), Semver)
        return int(getattr(version, name))

    return read


# Optionals and sets.


def _value(optional: Value) -> Value:
    _take("value", (optional,), Optional)
    if optional is NONE:
        raise CelEvaluationError("optional.none() dereference")
    return optional.value


def _has_value(optional: Value) -> bool:
    _take("hasValue", (optional,), Optional)
    return optional is not NONE


def _non_zero(value: Value) -> Optional:
    is_zero = value is None or (is_number(value) and value == 0) or value is False
    empty = isinstance(value, (str, bytes, list, dict)) and not value
    return NONE if is_zero or empty else Optional(value)


def _contains_all(left: Value, right: Value) -> bool:
    _take("sets.contains", (left, right), list, list)
    return all(any(equal(a, b) for b in left) for a in right)


def _intersects(left: Value, right: Value) -> bool:
    _take("sets.intersects", (left, right), list, list)
    return any(equal(a, b) for a in left for b in right)


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "size": _size,
    "bool": _to_bool,
    "int": _to_int,
    "uint": _to_uint,
    "double": _to_double,
    "string": _to_string,
    "bytes": lambda value: value if type(value) is bytes else _to_string(value).encode(),
    "dyn": lambda value: value,
    "type": lambda value: TypeValue(type_name(value)),
    "startsWith": _of_string("startsWith", str.startswith),
    "endsWith": _of_string("endsWith", str.endswith),
    "contains": _of_string("contains", str.__contains__),
    "matches": _match,
    "find": _find,
    "findAll": _find_all,
    "charAt": _char_at,
    "lowerAscii": _ascii("lowerAscii", "A", 32),
    "upperAscii": _ascii("upperAscii", "a", -32),
    "trim": _trim,
    "strings.quote": lambda text: quoted(_to_string(text)),
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "join": _join,
    "replace": _replace,
    "split": _split,
    "substring": _substring,
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
    "sets.contains": _contains_all,
    "sets.equivalent": lambda a, b: _contains_all(a, b) and _contains_all(b, a),
    "sets.intersects": _intersects,
}
"""``or`` and ``orValue`` are the evaluator's: their argument is read only where it is needed."""
