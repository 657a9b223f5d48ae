"""The cost of calls by cel-go's libraries, by the name of the overload."""

from typing import Final

from dray.cel.cost.call import TENTH, Estimate, EstimatedCall, Rule, Sized
from dray.cel.cost.sizes import MOST, ONE, SizeRange, fixed
from dray.cel.syntax import tree


def _listed(factor: float, size: SizeRange) -> Estimate:
    """A call that makes a list."""
    return Estimate(size.scaled(factor).plus(ONE).plus(fixed(10)), size)


def _index_of(of: Sized, otherwise: int) -> int:
    """The value of an int literal that is used as a count. A negative value counts as zero."""
    node = of.node
    if isinstance(node, tree.Literal) and node.kind == "int" and isinstance(node.value, int):
        return max(0, node.value)
    return otherwise


def _slice(call: EstimatedCall) -> Estimate | None:
    if call.target is None:
        return None
    start = _index_of(call.arguments[0], 0)
    end = _index_of(call.arguments[1], call.target.size.high)
    return _listed(1, fixed(end - start))


def _range(call: EstimatedCall) -> Estimate:
    return _listed(1, fixed(_index_of(call.arguments[0], MOST)))


def _reverse(call: EstimatedCall) -> Estimate | None:
    return _listed(1, call.target.size) if call.target else None


def _flatten(call: EstimatedCall) -> Estimate | None:
    if call.target is None:
        return None
    depth = _index_of(call.arguments[0], MOST) if call.arguments else 1
    return _listed(float(depth), call.target.size)


def _distinct(call: EstimatedCall) -> Estimate | None:
    return _listed(2.0, call.target.size.times(call.target.size)) if call.target else None


def _sort(call: EstimatedCall) -> Estimate | None:
    sorted_by = call.arguments[0] if call.arguments else call.target
    if sorted_by is None:
        return None
    is_text = call.overload.startswith(("list_string_", "list_bytes_"))
    return _listed(2.0 + TENTH if is_text else 2.0, sorted_by.size.times(sorted_by.size))


def _sets(factor: float) -> Rule:
    def cost(call: EstimatedCall) -> Estimate:
        left, right = call.arguments
        return Estimate(left.size.times(right.size).scaled(factor).plus(ONE))

    return cost


_SORTED: Final = (
    "int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp",
    "string", "bytes",
)  # fmt: skip
BY_EXTENSION: Final[dict[str, Rule]] = {
    "list_slice": _slice,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_distinct": _distinct,
    **{f"list_{name}_sort": _sort for name in _SORTED},
    **{f"list_{name}_sortByAssociatedKeys": _sort for name in _SORTED},
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}
