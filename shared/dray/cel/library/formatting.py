"""``format`` of strings: clauses such as ``%s`` and ``%.2f``, numbers as in American English."""

import math
import re
from collections.abc import Callable
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library.conversions import to_string
from dray.cel.library.go_quotes import quoted
from dray.cel.library.times import Duration, Timestamp, duration_text, timestamp_text
from dray.cel.library.values import TypeValue, Uint, Value, from_key, type_name
from dray.cel.limits import refuse_excess_work

_CLAUSE: Final = re.compile(r"%(?:%|(?:\.(?P<precision>[0-9]+))?(?P<verb>[sdfebxXo]))")
_DEFAULT_PRECISION: Final = 6
_LONGEST_PRECISION: Final = 6
_SUPERSCRIPT: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")


def formatted(template: str, arguments: list[Value]) -> str:
    """``template`` with its clauses replaced by the arguments, in order.

    Raises:
        CelEvaluationError: an unknown clause, too few arguments, or an argument of a wrong type.
    """
    shown: list[str] = []
    at = used = 0
    while at < len(template):
        percent = template.find("%", at)
        if percent < 0:
            break
        shown.append(template[at:percent])
        match = _CLAUSE.match(template, percent)
        if match is None:
            raise CelEvaluationError("could not parse formatting clause")
        at = match.end()
        if match["verb"] is None:
            shown.append("%")
            continue
        if used >= len(arguments):
            raise CelEvaluationError(f"index {used} out of range")
        shown.append(_clause(match["verb"], match["precision"], arguments[used]))
        used += 1
    return "".join((*shown, template[at:]))


def _clause(verb: str, precision: str | None, value: Value) -> str:
    if precision is not None and len(precision) > _LONGEST_PRECISION:
        raise CelEvaluationError("error while converting precision to integer")
    digits = None if precision is None else int(precision)
    refuse_excess_work(digits or 0)
    if verb == "f":
        return _fixed(_float(verb, value), _DEFAULT_PRECISION if digits is None else digits)
    return _scientific(_float(verb, value), digits) if verb == "e" else _VERBS[verb](value)


def _wrong(clause: str, kinds: str, value: Value) -> CelEvaluationError:
    reason = f"{clause} clause can only be used on {kinds}, was given {type_name(value)}"
    return CelEvaluationError(f"error during formatting: {reason}")


def _float(verb: str, value: Value) -> float:
    if type(value) is float:
        return value
    if value in _NO_NUMBERS and type(value) is str:
        return float(value)
    raise _wrong("fixed-point" if verb == "f" else "scientific", "doubles", value)


def _endless(value: float) -> str:
    return "NaN" if math.isnan(value) else ("∞" if value > 0 else "-∞")


def _fixed(value: float, digits: int) -> str:
    value = value or 0.0  # a zero is written without a sign
    return f"{value:,.{digits}f}" if math.isfinite(value) else _endless(value)


def _scientific(value: float, width: int | None) -> str:
    """A number in scientific notation. Upstream uses the precision as the width."""
    value = value or 0.0
    shown = _endless(value)
    if math.isfinite(value):
        mantissa, _, exponent = f"{value:.{_DEFAULT_PRECISION}e}".partition("e")
        shown = f"{mantissa}×10{exponent.removeprefix('+').translate(_SUPERSCRIPT)}"
    return shown.rjust(_DEFAULT_PRECISION if width is None else width)


def _decimal(value: Value) -> str:
    if type(value) in (int, Uint):
        return str(int(value))
    raise _wrong("decimal", "integers", value)


def _binary(value: Value) -> str:
    if type(value) in (int, Uint, bool):
        return format(int(value), "b")
    raise CelEvaluationError(
        f"only integers and bools can be formatted as binary, was given {type_name(value)}"
    )


def _octal(value: Value) -> str:
    if type(value) in (int, Uint):
        return format(int(value), "o")
    raise _wrong("octal", "integers", value)


def _hexadecimal(value: Value) -> str:
    if type(value) in (int, Uint):
        return format(int(value), "x")
    if type(value) is str:
        return value.encode("utf-8", "surrogateescape").hex()
    if type(value) is bytes:
        return value.hex()
    raise CelEvaluationError(
        "only integers, byte buffers, and strings can be formatted as hex, "
        f"was given {type_name(value)}"
    )


def _string(value: Value) -> str:
    match value:
        case list():
            return "[" + ", ".join(map(_member, value)) + "]"
        case dict():
            return _map(value)
        case None:
            return "null"
        case TypeValue():
            return value.name
        case Timestamp():
            return timestamp_text(value)
        case Duration():
            return duration_text(value)
        case bool() | int() | float() | str() | bytes():
            return to_string(value)
        case _:
            kinds = (
                "strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
                "and timestamps"
            )
            raise _wrong("string", kinds, value)


def _map(value: dict[Value, Value]) -> str:
    pairs = []
    for key, item in value.items():
        name = from_key(key)
        if type(name) not in (str, bool, int, Uint):
            raise CelEvaluationError(
                f"no formatting function for map key of type {type_name(name)}"
            )
        pairs.append((quoted(name) if type(name) is str else _string(name), _member(item)))
    pairs.sort(key=lambda pair: pair[0])
    return "{" + ", ".join(f"{name}:{item}" for name, item in pairs) + "}"


def _member(value: Value) -> str:
    """A value inside a list or map, as a CEL literal."""
    match value:
        case str():
            return quoted(value)
        case bytes():
            return "b" + quoted(to_string(value))
        case Timestamp() | Duration():
            kind = "timestamp" if isinstance(value, Timestamp) else "duration"
            return f'{kind}("{_string(value)}")'
        case float():
            if math.isfinite(value):
                return f"{value:.6f}"
            return '"NaN"' if math.isnan(value) else ('"+Inf"' if value > 0 else '"-Inf"')
        case _:
            return _string(value)


_VERBS: Final[dict[str, Callable[[Value], str]]] = {
    "s": _string,
    "d": _decimal,
    "b": _binary,
    "o": _octal,
    "x": _hexadecimal,
    "X": lambda value: _hexadecimal(value).upper(),
}
