"""Conversions between CEL's types: ``int(x)``, ``string(x)`` and so on."""

import math
import re
from decimal import Decimal
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.operators import signed, unsigned
from dray.cel.values import Uint, Value, is_number, type_name

_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")


def to_bool(value: Value) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and value in _TRUE + _FALSE:
        return value in _TRUE
    raise _conversion(value, "bool")


def to_int(value: Value) -> int:
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


def to_uint(value: Value) -> Uint:
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


def to_double(value: Value) -> float:
    if is_number(value):
        return float(value)
    decimal = r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    if type(value) is str and re.fullmatch(decimal + r"|(?i:inf|infinity|nan))", value):
        return float(value)
    raise _conversion(value, "double")


def to_string(value: Value) -> str:
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
