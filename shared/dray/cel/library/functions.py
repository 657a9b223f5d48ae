"""CEL's functions on values, by the name that the checker declares them under."""

from collections.abc import Callable
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library import (
    conversions,
    lists,
    network_functions,
    optional_functions,
    quantity_functions,
    semver_functions,
    strings,
    time_functions,
)
from dray.cel.library.formatting import formatted
from dray.cel.library.values import TypeValue, Value, equal, no_overload, take, type_name
from dray.cel.types.declarations.kubernetes import AUTHORIZATION

_INCLUDED_AT_MOST: Final = 48
"""``ResourceSliceMaxAttributeValuesPerDevice``."""


def _size(value: Value) -> int:
    if type(value) in (str, bytes, list) or isinstance(value, dict):
        return len(value)
    raise no_overload("size", value)


def includes(value: Value, item: Value, at_most: int | None = _INCLUDED_AT_MOST) -> bool:
    """DRA's own function: whether a value, or one of its first elements, equals ``item``.

    Raises:
        CelEvaluationError: the list is longer than ``at_most``, and no element before equals it.
    """
    candidates = value if type(value) is list else [value]
    for at, candidate in enumerate(candidates):
        if at == at_most:
            raise CelEvaluationError(
                f"'includes' function cannot be applied to lists longer than {at_most} values"
            )
        try:
            if equal(candidate, item):
                return True
        except CelEvaluationError:
            continue
    return False


def _format(template: Value, arguments: Value) -> str:
    take("format", (template, arguments), str, list)
    return formatted(template, arguments)


def _on_lists(of_list: Callable[..., Value], of_text: Callable[..., Value]) -> Callable[..., Value]:
    return lambda value, *rest: (of_list if type(value) is list else of_text)(value, *rest)


def _authorizer(name: str) -> Callable[..., Value]:
    """A function of Kubernetes' authorizer. No value in a selector has its types."""

    def call(*values: Value) -> Value:
        raise no_overload(name, *values)

    return call


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "size": _size,
    "bool": conversions.to_bool,
    "int": conversions.to_int,
    "uint": conversions.to_uint,
    "double": conversions.to_double,
    "string": conversions.to_string,
    "bytes": conversions.to_bytes,
    "duration": conversions.to_duration,
    "timestamp": conversions.to_timestamp,
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
    "strings.quote": strings.quote,
    "format": _format,
    "indexOf": _on_lists(lists.index_of, strings.index_of),
    "lastIndexOf": _on_lists(lists.last_index_of, strings.last_index_of),
    "join": strings.join,
    "replace": strings.replace,
    "split": strings.split,
    "substring": strings.substring,
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
    "@sortByAssociatedKeys": lists.in_order_of,
    "includes": includes,
    **quantity_functions.FUNCTIONS,
    **semver_functions.FUNCTIONS,
    **network_functions.FUNCTIONS,
    **time_functions.FUNCTIONS,
    **optional_functions.FUNCTIONS,
    **{name: _authorizer(name) for name in AUTHORIZATION},
}
"""The evaluator handles ``or`` and ``orValue``, because it reads their argument only if needed."""
