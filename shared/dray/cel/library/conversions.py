"""Conversions between CEL's types: ``int(x)``, ``string(x)`` and so on."""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final, TypeVar

from dray.cel.errors import CelEvaluationError
from dray.cel.library.network import Cidr, Ip
from dray.cel.library.operators import signed, unsigned
from dray.cel.library.times import (
    SECOND,
    Duration,
    TimeError,
    Timestamp,
    duration_text,
    moment,
    parse_duration,
    parse_timestamp,
    timestamp_text,
)
from dray.cel.library.values import Uint, Value, is_number, type_name

Given = TypeVar("Given")
Made = TypeVar("Made")
_DECIMAL: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|(?i:inf|infinity|nan))"
)
_BETWEEN_DIGITS: Final = re.compile(r"(?<=[0-9])_(?=[0-9])")
_HEXADECIMAL: Final = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
)
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
        case Timestamp():
            return value.nanoseconds // SECOND
        case Duration():
            return value.nanoseconds
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
    if type(value) is str:
        number = _float(_BETWEEN_DIGITS.sub("", value))
        if number is not None:
            return number
    raise _conversion(value, "double")


def _float(text: str) -> float | None:
    """The float in a text as Go writes it; None if it is not a number or is too large."""
    if _DECIMAL.fullmatch(text):
        number = float(text)
        return number if not math.isinf(number) or "i" in text.lower() else None
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            return None
    return None


def to_bytes(value: Value) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode("utf-8", "surrogateescape")
    raise _conversion(value, "bytes")


def to_duration(value: Value) -> Duration:
    if type(value) is Duration:
        return value
    if type(value) is str:
        return _timed(parse_duration, value)
    raise _conversion(value, "google.protobuf.Duration")


def to_timestamp(value: Value) -> Timestamp:
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return _timed(moment, value * SECOND)
    if type(value) is str:
        return _timed(parse_timestamp, value)
    raise _conversion(value, "google.protobuf.Timestamp")


def _timed(parse: Callable[[Given], Made], value: Given) -> Made:
    try:
        return parse(value)
    except TimeError as error:
        raise CelEvaluationError(str(error)) from None


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
        case Timestamp():
            return timestamp_text(value)
        case Duration():
            return duration_text(value)
        case Ip() | Cidr():
            return str(value)
        case _:
            raise _conversion(value, "string")


def _shortest(value: float) -> str:
    """The shortest digits that give the same float. Has an exponent if Go's ``%g`` writes one."""
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
