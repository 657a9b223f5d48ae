"""Reading built-in objects by a field table: unknown fields, wrong types, canonical quantities.

A real server decodes JSON into Go structs. Fields that the struct lacks are dropped, or refused by
strict validation; nulls are removed; quantities become canonical. The tables here are small trees
of the five node kinds below.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import quantities
from .status import bad_request


@dataclass(frozen=True)
class Scalar:
    """A leaf: `string`, `integer`, `boolean`, `quantity`, `time`, `microtime`."""

    kind: str


@dataclass(frozen=True)
class Anything:
    """A subtree that this server does not check."""


@dataclass(frozen=True)
class ListOf:
    """A list of one type."""

    item: Type


@dataclass(frozen=True)
class MapOf:
    """A map from strings to one type."""

    item: Type


@dataclass(frozen=True)
class Obj:
    """A struct; `open` ones keep fields that the table doesn't name."""

    fields: Mapping[str, Type]
    open: bool = False
    dropped: frozenset[str] = field(default=frozenset())
    """Known fields whose feature gate is off: accepted, never stored."""


Type = Scalar | Anything | ListOf | MapOf | Obj

STRING = Scalar("string")
INTEGER = Scalar("integer")
BOOLEAN = Scalar("boolean")
QUANTITY = Scalar("quantity")
TIME = Scalar("time")
MICROTIME = Scalar("microtime")
ANY = Anything()


class WrongType(Exception):
    """A value that doesn't fit its field; `args[0]` is the text."""


def read(value: Any, kind: Type, unknown: list[str], path: str = "") -> Any:
    """`value` as the server would store it; names of unknown fields go to `unknown`."""
    if value is None:
        return _zero(kind)
    match kind:
        case Scalar():
            return _scalar(value, kind.kind, path)
        case ListOf():
            _must_be(value, list, "array", path)
            return [
                read(item, kind.item, unknown, f"{path}[{index}]")
                for index, item in enumerate(value)
            ]
        case MapOf():
            _must_be(value, dict, "object", path)
            return {
                key: read(item, kind.item, unknown, f"{path}.{key}") for key, item in value.items()
            }
        case Obj():
            _must_be(value, dict, "object", path)
            return _object(value, kind, unknown, path)
        case Anything():
            return value


def _zero(kind: Type) -> Any:
    """The value of a null item of a list or a map. A null field of a struct is omitted."""
    match kind:
        case Scalar():
            return _ZEROS.get(kind.kind)
        case ListOf():
            return []
        case MapOf() | Obj():
            return {}
        case Anything():
            return None


_ZEROS = {"string": "", "integer": 0, "boolean": False, "quantity": "0"}


def _object(value: Mapping[str, Any], kind: Obj, unknown: list[str], path: str) -> dict[str, Any]:
    result = {}
    for key, item in value.items():
        child = f"{path}.{key}" if path else key
        if key in kind.fields:
            if item is not None:
                result[key] = read(item, kind.fields[key], unknown, child)
        elif kind.open:
            result[key] = item
        elif key not in kind.dropped:
            unknown.append(child)
    return result


def _must_be(value: Any, wanted: type, name: str, path: str) -> None:
    if not isinstance(value, wanted):
        seen = _json_type(value)
        raise WrongType(f"json: cannot unmarshal {seen} into field {path} of type {name}")


def _scalar(value: Any, kind: str, path: str) -> Any:
    if kind == "quantity":
        return _quantity(value, path)
    if kind in _TIMES and isinstance(value, str):
        return _time(value, kind)
    fits = {
        "string": isinstance(value, str),
        "time": False,
        "microtime": False,
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
    }[kind]
    if not fits:
        seen = _json_type(value)
        raise WrongType(f"json: cannot unmarshal {seen} into field {path} of type {kind}")
    return value


_TIMES = {"time": "2006-01-02T15:04:05Z07:00", "microtime": "2006-01-02T15:04:05.000000Z07:00"}


def _time(value: str, kind: str) -> str:
    """metav1.Time keeps whole seconds; MicroTime wants its six digits."""
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        moment = datetime.datetime.min
    if moment.tzinfo is None or (kind == "microtime" and "." not in value):
        raise WrongType(f'parsing time "{value}" as "{_TIMES[kind]}": cannot parse "{value}"')
    moment = moment.astimezone(datetime.UTC)
    if kind == "time":
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _quantity(value: Any, path: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        seen = _json_type(value)
        raise WrongType(f"json: cannot unmarshal {seen} into field {path} of type quantity")
    try:
        return str(quantities.parse(str(value)))
    except ValueError as error:
        raise WrongType(str(error)) from error


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else "null"


def decode(
    value: Any, kind: Type, *, what: str, version: str, strict: bool
) -> tuple[Any, list[str]]:
    """Read a whole object of kind `what`.

    Returns the object and the unknown fields that were dropped. Raises 400 as the real server
    words it, for a wrong type or, when `strict`, for unknown fields.
    """
    unknown: list[str] = []
    prefix = f'{what} in version "{version}" cannot be handled as a {what}: '
    try:
        result = read(value, kind, unknown)
    except WrongType as error:
        raise bad_request(prefix + str(error)) from error
    if unknown and strict:
        named = ", ".join(f'unknown field "{name}"' for name in unknown)
        raise bad_request(f"{prefix}strict decoding error: {named}")
    return result, unknown
