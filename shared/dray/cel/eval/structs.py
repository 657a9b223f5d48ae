"""Literals of protobuf's own messages. Each stands for a plain CEL value."""

import base64
import struct
from collections.abc import Callable
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library.times import SECOND, Duration, Timestamp, duration_text, timestamp_text
from dray.cel.library.values import NONE, Optional, Uint, Value, type_name

_EXACT: Final = 2**53
_INT32: Final = range(-(2**31), 2**31)
_UINT32: Final = range(2**32)
_KINDS: Final[dict[str, type]] = {
    "bool_value": bool, "number_value": float, "string_value": str, "list_value": list,
    "struct_value": dict,
}  # fmt: skip
Fields = dict[str, Value]


def built(name: str, fields: Fields) -> Value:
    """The value of ``name{…}``. Missing fields are empty.

    Raises:
        CelEvaluationError: a field's value does not fit, or the message stands for no value.
    """
    make = _MADE.get(name.removeprefix("google.protobuf."))
    if make is None:
        raise CelEvaluationError(f"unsupported type conversion: {name}")
    return make(fields)


def _wrapper(empty: Value, *, within: range | None = None) -> Callable[[Fields], Value]:
    def make(fields: Fields) -> Value:
        value = fields.get("value", empty)
        if value is None:
            return empty
        if type(value) is not type(empty):
            raise _misfit(value, type_name(empty))
        if within is not None and not within.start <= value < within.stop:
            raise CelEvaluationError("integer overflow")
        return value

    return make


def _misfit(value: Value, wanted: str) -> CelEvaluationError:
    return CelEvaluationError(f"unsupported field type: {type_name(value)} is not a {wanted}")


def _float(fields: Fields) -> float:
    value = _wrapper(0.0)(fields)
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _time(fields: Fields) -> tuple[int, int]:
    seconds, nanos = fields.get("seconds", 0), fields.get("nanos", 0)
    if type(seconds) is not int or type(nanos) is not int or nanos not in _INT32:
        raise _misfit([seconds, nanos], "int")
    return seconds, nanos


def _timestamp(fields: Fields) -> Value:
    seconds, nanos = _time(fields)
    return Timestamp(seconds * SECOND + nanos)


def _duration(fields: Fields) -> Value:
    seconds, nanos = _time(fields)
    total = seconds * SECOND + nanos
    return Duration(min(max(total, -(2**63)), 2**63 - 1))


def _json(value: Value) -> Value:
    """The value as in protobuf's JSON: numbers are doubles, or text if a double is not exact."""
    match value:
        case None | bool() | str() | float():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case Duration():
            return duration_text(value)
        case Timestamp():
            return timestamp_text(value)
        case Optional() if value is not NONE:
            return _json(value.value)
        case int():
            return float(value) if -_EXACT < value < _EXACT else str(int(value))
        case list():
            return [_json(item) for item in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: _json(item) for key, item in value.items()}
        case _:
            raise _misfit(value, "JSON")


def _value(fields: Fields) -> Value:
    if not fields:
        return None
    name, value = list(fields.items())[-1]
    if name in _KINDS and not isinstance(value, _KINDS[name]):
        raise _misfit(value, name)
    return None if name == "null_value" else _json(value)


_MADE: Final[dict[str, Callable[[Fields], Value]]] = {
    "BoolValue": _wrapper(False),
    "BytesValue": _wrapper(b""),
    "DoubleValue": _wrapper(0.0),
    "FloatValue": _float,
    "Int32Value": _wrapper(0, within=_INT32),
    "Int64Value": _wrapper(0),
    "StringValue": _wrapper(""),
    "UInt32Value": _wrapper(Uint(0), within=_UINT32),
    "UInt64Value": _wrapper(Uint(0)),
    "Timestamp": _timestamp,
    "Duration": _duration,
    "Struct": lambda fields: _json(fields.get("fields", {})),
    "ListValue": lambda fields: _json(fields.get("values", [])),
    "Value": _value,
}
