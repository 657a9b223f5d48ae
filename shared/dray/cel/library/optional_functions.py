"""CEL's optional values, sets, and Kubernetes' named formats."""

from collections.abc import Callable
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library.lists import scalar_key, scalar_keys
from dray.cel.library.named_formats import FORMATS, NamedFormat
from dray.cel.library.values import (
    BROKEN,
    NONE,
    Optional,
    Value,
    is_among,
    is_zero,
    no_overload,
    take,
)


def _value(optional: Value) -> Value:
    take("value", (optional,), Optional)
    if optional is NONE:
        raise CelEvaluationError("optional.none() dereference")
    if optional.value is BROKEN:
        raise CelEvaluationError("unsupported conversion to ref.Val")
    return optional.value


def _has_value(optional: Value) -> bool:
    take("hasValue", (optional,), Optional)
    return optional is not NONE


def _present(items: Value) -> list[Value]:
    """``optional.unwrap(items)``."""
    if type(items) is not list:
        raise no_overload("unwrapOpt", items)
    if any(type(item) is not Optional for item in items):
        raise CelEvaluationError("a value to unwrap is not optional")
    return [item.value for item in items if item is not NONE]


def _edge(function: str, at: int) -> Callable[[Value], Optional]:
    def call(items: Value) -> Optional:
        take(function, (items,), list)
        return Optional(items[at]) if items else NONE

    return call


def _contains_all(left: Value, right: Value) -> bool:
    take("sets.contains", (left, right), list, list)
    keys = scalar_keys(left)
    return all(is_among(item, left) if keys is None else _is_key(item, keys) for item in right)


def _is_key(item: Value, keys: frozenset[Value]) -> bool:
    key = scalar_key(item)
    return key is not None and key in keys


def _intersects(left: Value, right: Value) -> bool:
    take("sets.intersects", (left, right), list, list)
    keys = scalar_keys(right)
    return any(is_among(item, right) if keys is None else _is_key(item, keys) for item in left)


def _named(name: Value) -> Optional:
    take("format.named", (name,), str)
    return Optional(FORMATS[name]) if name in FORMATS else NONE


def _validate(named: Value, text: Value) -> Optional:
    take("validate", (named, text), NamedFormat, str)
    problems = named.problems(text)
    return Optional(problems) if problems else NONE


def _always(named: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: named


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "optional.of": Optional,
    "optional.ofNonZeroValue": lambda value: NONE if is_zero(value) else Optional(value),
    "optional.none": lambda: NONE,
    "optional.unwrap": _present,
    "unwrapOpt": _present,
    "value": _value,
    "hasValue": _has_value,
    "first": _edge("first", 0),
    "last": _edge("last", -1),
    "sets.contains": _contains_all,
    "sets.equivalent": lambda a, b: _contains_all(a, b) and _contains_all(b, a),
    "sets.intersects": _intersects,
    "format.named": _named,
    "validate": _validate,
    **{f"format.{name}": _always(named) for name, named in FORMATS.items()},
}
