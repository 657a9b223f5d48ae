"""CEL's functions on lists, from the lists extension and from Kubernetes."""

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library.operators import add, ordering
from dray.cel.library.times import Duration, Timestamp
from dray.cel.library.values import Uint, Value, as_key, equal, is_among, no_overload, take

_is_less = ordering("_<_", lambda sign: sign < 0)
_COMPARABLE: Final = (int, Uint, float, bool, str, bytes, Duration, Timestamp)
_EXACT: Final = 2.0**53
_ZEROS: Final[dict[type, Value]] = {int: 0, Uint: Uint(0), float: 0.0, Duration: Duration(0)}


def index_of(items: Value, item: Value) -> int:
    """The first position of ``item``, or -1."""
    take("indexOf", (items,), list)
    return next((at for at, found in enumerate(items) if _is_equal(found, item)), -1)


def last_index_of(items: Value, item: Value) -> int:
    """The last position of ``item``, or -1."""
    take("lastIndexOf", (items,), list)
    found = [at for at, other in enumerate(items) if _is_equal(other, item)]
    return found[-1] if found else -1


def _is_equal(left: Value, right: Value) -> bool:
    try:
        return equal(left, right)
    except CelEvaluationError:
        return False


def is_sorted(items: Value) -> bool:
    """Whether no element is less than the one before it."""
    _comparable("isSorted", items)
    return not any(_compare(before, after) == 1 for before, after in pairwise(items))


def total(items: Value) -> Value:
    """``sum()``. It is 0 for an empty list of unknown type."""
    take("sum", (items,), list)
    return total_from(_zero(items[0]) if items else 0)(items)


def total_from(zero: Value) -> Callable[[Value], Value]:
    """``sum()`` of elements of one type. ``zero`` is the zero of that type."""

    def call(items: Value) -> Value:
        take("sum", (items,), list)
        result = zero
        for item in items:
            result = add(result, item)
        return result

    return call


def _zero(item: Value) -> Value:
    zero = _ZEROS.get(type(item))
    if zero is None:
        raise no_overload("sum", [item])
    return zero


def least(items: Value) -> Value:
    """``min()``; the first one if several elements are equal."""
    return _extreme("min", items, 1)


def greatest(items: Value) -> Value:
    """``max()``; the first one if several elements are equal."""
    return _extreme("max", items, -1)


def _extreme(function: str, items: Value, preferred: int) -> Value:
    _comparable(function, items)
    if not items:
        raise CelEvaluationError(f"{function} called on empty list")
    found = items[0]
    for item in items[1:]:
        if _compare(found, item) == preferred:
            found = item
    return found


def _comparable(function: str, items: Value) -> None:
    if type(items) is not list or any(type(item) not in _COMPARABLE for item in items):
        raise no_overload(function, items)


def _compare(left: Value, right: Value) -> int | None:
    """The order of two values; None if they have none. Upstream's functions ignore such pairs."""
    try:
        return int(_is_less(right, left)) - int(_is_less(left, right))
    except CelEvaluationError:
        return None


def numbers_below(end: Value) -> list[Value]:
    """``lists.range(end)``; the caller accounts for its length first."""
    take("lists.range", (end,), int)
    return list(range(end))


def cut(items: Value, start: Value, end: Value) -> list[Value]:
    """``slice(start, end)``."""
    take("slice", (items, start, end), list, int, int)
    if start < 0 or end < 0:
        raise CelEvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelEvaluationError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(items):
        raise CelEvaluationError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return list(items[start:end])


def flat(items: Value, depth: Value = 1) -> list[Value]:
    """``flatten(depth)``."""
    take("flatten", (items, depth), list, int)
    if depth < 0:
        raise CelEvaluationError("level must be non-negative")
    found: list[Value] = []
    for item in items:
        found += flat(item, depth - 1) if type(item) is list and depth > 0 else [item]
    return found


def backwards(items: Value) -> list[Value]:
    """``reverse()``."""
    take("reverse", (items,), list)
    return list(reversed(items))


def distinct(items: Value) -> list[Value]:
    """The first of each group of equal elements."""
    take("distinct", (items,), list)
    found: list[Value] = []
    keys: set[Value] = set()
    others: list[Value] = []
    for item in items:
        key = scalar_key(item)
        if key is None:
            if not is_among(item, others):
                others.append(item)
                found.append(item)
        elif key not in keys or item != item:
            keys.add(key)
            found.append(item)
    return found


def scalar_key(item: Value) -> Value | None:
    """A key that equal elements share, if they are text, numbers or bools; else None."""
    kind = type(item)
    if kind is str or kind is int or kind is Uint:
        return item
    if kind is float:
        return item if abs(item) < _EXACT else None
    return as_key(item) if kind is bool else None


def scalar_keys(items: list[Value]) -> frozenset[Value] | None:
    """The keys of all elements; None if one has none."""
    keys = [scalar_key(item) for item in items]
    return None if None in keys else frozenset(key for key in keys if key == key)


def in_order(items: Value) -> list[Value]:
    """``sort()``; all elements are of one comparable type."""
    take("sort", (items,), list)
    return in_order_of(items, items)


def in_order_of(items: Value, keys: Value) -> list[Value]:
    """``sortBy``: the elements in the order of their keys.

    Raises:
        CelEvaluationError: the keys have different types, or a type without an order.
    """
    take("@sortByAssociatedKeys", (items, keys), list, list)
    kinds = {type(key) for key in keys}
    if len(kinds) > 1:
        raise CelEvaluationError("list elements must have the same type")
    if kinds and not kinds <= set(_COMPARABLE):
        raise CelEvaluationError("list elements must be comparable")
    order = sorted(range(len(items)), key=cmp_to_key(lambda a, b: _compare(keys[a], keys[b]) or 0))
    return [items[at] for at in order]
