"""The cost of calls at run time, as cel-go and Kubernetes' libraries count it.

Sizes are those of cel-go: characters, elements, bytes, or 1 for values without a size. A cost that
is the same for every call is a number. Other costs are functions of the arguments and the result.
"""

from collections.abc import Callable, Sequence
from typing import Final

from dray.cel.eval.frame import FAILED
from dray.cel.library.named_formats import NamedFormat
from dray.cel.library.network import Cidr, Ip
from dray.cel.library.semver import Semver
from dray.cel.library.urls import Url
from dray.cel.library.values import NONE, QUANTITIES, Optional, Value
from dray.cel.limits import StoppedError

Charge = Callable[[Sequence[Value], Value], int]
"""The cost of a call with these arguments (``FAILED`` among them) and this result."""

LIST_COST: Final = 10
MAP_COST: Final = 30
STRUCT_COST: Final = 40
_CHEAP_EQUALITY: Final = frozenset((*QUANTITIES, Semver, Ip, Cidr, Url, NamedFormat))


def size(value: Value) -> int:
    """The size of a value, for the cost of walking over it."""
    if isinstance(value, (str, bytes, list, dict)):
        return len(value)
    if type(value) is Optional and value is not NONE:
        return size(value.value)
    if type(value) is Ip:
        return value.bits // 8
    return -(-value.prefix_length // 8) if type(value) is Cidr else 1


def tenth(characters: int) -> int:
    """The cost of walking over this many characters."""
    return -(-characters // 10)


def equality_cost(left: Value, right: Value) -> int:
    """The cost of ``==``."""
    return 1 if type(left) in _CHEAP_EQUALITY else tenth(min(size(left), size(right)))


def traversal_cost(value: Value) -> int:
    """The cost of walking over a value and everything in it."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogateescape")) // 10
    if isinstance(value, bytes):
        return len(value) // 10
    if isinstance(value, list):
        return sum(map(traversal_cost, value))
    if isinstance(value, dict):
        return sum(traversal_cost(key) + traversal_cost(item) for key, item in value.items())
    return 1


def _first(values: Sequence[Value], result: Value) -> int:
    return tenth(size(values[0]))


def _first_twice(values: Sequence[Value], result: Value) -> int:
    return tenth(2 * size(values[0]))


def _shorter(values: Sequence[Value], result: Value) -> int:
    return tenth(min(size(values[0]), size(values[1])))


def _both(values: Sequence[Value], result: Value) -> int:
    return tenth(size(values[0]) + size(values[1]))


def _pattern(values: Sequence[Value], result: Value) -> int:
    return tenth(1 + size(values[0])) * -(-size(values[1]) // 4)


def _traversal(values: Sequence[Value], result: Value) -> int:
    return traversal_cost(values[0])


def _validation(values: Sequence[Value], result: Value) -> int:
    if not isinstance(values[0], NamedFormat):
        return 1
    return tenth(1 + size(values[1])) * -(-values[0].regex_size // 4)


def _contains_ip(values: Sequence[Value], result: Value) -> int:
    return tenth(2 * size(values[0]))


def _contains_ip_text(values: Sequence[Value], result: Value) -> int:
    return tenth(2 * size(values[0])) + tenth(size(values[1]))


def _contains_cidr(values: Sequence[Value], result: Value) -> int:
    return tenth(2 * size(values[0])) + tenth(size(values[0])) + 1


def _contains_cidr_text(values: Sequence[Value], result: Value) -> int:
    return _contains_cidr(values, result) + tenth(size(values[1]))


def _made(values: Sequence[Value], result: Value) -> int:
    return size(result) + 1 + LIST_COST


def flattening_cost(values: Sequence[Value], result: Value) -> int:
    """The cost of ``flatten``, with a depth or without."""
    depth = values[1] if len(values) == 2 else 1
    if type(depth) is not int:
        raise StoppedError("internal error: interface conversion")
    return (_as_uint64(float(depth) * size(values[0])) + 1 + LIST_COST) % 2**64


def _as_uint64(number: float) -> int:
    """Go's conversion on amd64: a number that does not fit becomes 2⁶³."""
    if -(2.0**63) < number < 2.0**64:
        return int(number) % 2**64
    return 2**63


def compared_cost(items: Value) -> int:
    """The cost of comparing each element of a list with every element.

    Raises:
        StoppedError: it is not a list. Kubernetes' evaluator panics then.
    """
    if type(items) is not list:
        raise StoppedError("internal error: interface conversion")
    length = len(items)
    of_text = bool(items) and isinstance(items[0], (str, bytes))
    return (length * length * 21 // 10 if of_text else 2 * length * length) + 1 + LIST_COST


def _compared(values: Sequence[Value], result: Value) -> int:
    return compared_cost(values[0])


def _sets(factor: int) -> Charge:
    return lambda values, result: 1 + factor * size(values[0]) * size(values[1])


def _selector(values: Sequence[Value], result: Value) -> int:
    """The cost of a label or field selector: its text, and one requirement per two characters."""
    length = size(values[1])
    return LIST_COST + tenth(length) + -(-length // 2) * (LIST_COST + STRUCT_COST)


_BY_FUNCTION: Final[dict[str, Charge]] = {
    "check": lambda values, result: 350_000,
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traversal),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim", "cidr"), _first),
    **dict.fromkeys(("isIP", "isCIDR", "ip", "quantity", "isQuantity"), _first),
    **dict.fromkeys(("semver", "isSemver"), _first),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _first_twice),
    "join": lambda values, result: tenth(2 * size(result)),
    **dict.fromkeys(("find", "findAll"), _pattern),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validation,
    "_==_": lambda values, result: equality_cost(values[0], values[1]),
    "_!=_": _shorter,
}  # fmt: skip
_BY_OVERLOAD: Final[dict[str, Charge | int]] = {
    "cidr_ip": 1,
    "cidr_contains_ip_string": _contains_ip_text,
    "cidr_contains_cidr_string": _contains_cidr_text,
    "starts_with_string": _first, "ends_with_string": _first, "string_to_bytes": _first,
    "bytes_to_string": _first, "strings_quote": _first, "string_format": _first,
    "in_list": lambda values, result: size(values[1]),
    **{f"{name}_{kind}": _shorter
       for name in ("less", "greater", "less_equals", "greater_equals")
       for kind in ("string", "bytes")},
    "add_string": _both, "add_bytes": _both,
    "matches_string": _pattern,
    "contains_string":
        lambda values, result: tenth(size(values[0])) * tenth(size(values[1])),
    "list_slice": _made, "lists_range": _made, "list_reverse": _made,
    "list_flatten": flattening_cost, "list_flatten_int": flattening_cost,
    "list_distinct": _compared,
    **{f"list_{kind}_sort": _compared
       for kind in ("int", "uint", "double", "bool", "google.protobuf.Duration",
                    "google.protobuf.Timestamp", "string", "bytes")},
    "list_sets_contains_list": _sets(1), "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}  # fmt: skip


def charge_of(function: str, overload: str | None) -> Charge | int:
    """The cost of a call. ``overload`` is None if only the arguments determine it."""
    if overload is not None and overload in _BY_OVERLOAD:
        return _BY_OVERLOAD[overload]
    return _BY_FUNCTION.get(function, 1)


__all__ = [
    "FAILED", "LIST_COST", "MAP_COST", "STRUCT_COST", "Charge", "charge_of", "compared_cost",
    "equality_cost", "flattening_cost", "size", "tenth", "traversal_cost",
]  # fmt: skip
