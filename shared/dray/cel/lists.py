"""CEL's functions on lists, of the lists extension and of Kubernetes' own."""

from functools import cmp_to_key
from itertools import pairwise

from dray.cel.errors import CelEvaluationError
from dray.cel.operators import add, ordering
from dray.cel.values import Value, equal, is_among, take, type_name

_is_less = ordering("_<_", lambda sign: sign < 0)
_COMPARABLE = ("int", "uint", "double", "bool", "string", "bytes")


def index_of(items: Value, item: Value) -> int:
    """The first position of ``item``, or -1."""
    take("indexOf", (items,), list)
    return next((at for at, found in enumerate(items) if equal(found, item)), -1)


def last_index_of(items: Value, item: Value) -> int:
    """The last position of ``item``, or -1."""
    take("lastIndexOf", (items,), list)
    found = [at for at, other in enumerate(items) if equal(other, item)]
    return found[-1] if found else -1


def is_sorted(items: Value) -> bool:
    """Whether no element is less than the one before it."""
    take("isSorted", (items,), list)
    return not any(_is_less(after, before) for before, after in pairwise(items))


def total(items: Value) -> Value:
    """``sum()``: that of an empty list is 0."""
    take("sum", (items,), list)
    result: Value = items[0] if items else 0
    for item in items[1:]:
        result = add(result, item)
    return result


def least(items: Value) -> Value:
    """``min()``, the first of equals."""
    return _extreme("min", items, smallest=True)


def greatest(items: Value) -> Value:
    """``max()``, the first of equals."""
    return _extreme("max", items, smallest=False)


def _extreme(function: str, items: Value, *, smallest: bool) -> Value:
    take(function, (items,), list)
    if not items:
        raise CelEvaluationError(f"{function} called on empty list")
    found = items[0]
    for item in items[1:]:
        if _is_less(item, found) if smallest else _is_less(found, item):
            found = item
    return found


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
    for item in items:
        if not is_among(item, found):
            found.append(item)
    return found


def in_order(items: Value) -> list[Value]:
    """``sort()``; all elements are of one comparable type."""
    take("sort", (items,), list)
    kinds = {type_name(item) for item in items}
    if len(kinds) > 1:
        raise CelEvaluationError("list elements must have the same type")
    if kinds and not kinds <= set(_COMPARABLE):
        raise CelEvaluationError("list elements must be comparable")
    return sorted(items, key=cmp_to_key(lambda a, b: int(_is_less(b, a)) - int(_is_less(a, b))))
