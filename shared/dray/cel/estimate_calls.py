"""What one call costs at worst, and how large its result may be: by function and overload.

The rules are those of Kubernetes' estimator, then of cel-go's libraries, then of cel-go itself.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from dray.cel import tree, types
from dray.cel.device_sizes import size_of
from dray.cel.spans import MOST, ONE, UNKNOWN, ZERO, Span, fixed
from dray.cel.tree import Node
from dray.cel.types import Type

_TENTH: Final = 0.1
"""A character's share of a traversal."""
_QUARTER: Final = 0.25
"""A character's share of a regular expression."""
_FORMAT_LENGTH: Final = 64
_FORMAT_PATTERN_LENGTH: Final = 128
_CHECK_COST: Final = fixed(350_000)
_INCLUDED_AT_MOST: Final = 48
_ADDRESS_BYTES: Final = Span(4, 16)


class Sized(NamedTuple):
    """An operand: its node, its type, its size where that is known, and where it stands."""

    node: Node
    type: Type
    known: Span | None
    path: Callable[[], list[str]]

    @property
    def size(self) -> Span:
        return self.known or size_of(self.path()) or UNKNOWN

    @property
    def computed(self) -> Span:
        """The size without asking again what is declared of its place."""
        return self.known or UNKNOWN

    @property
    def items(self) -> "Span | None":
        """The size of each element of a list."""
        if not self.type.parameters:
            return None
        path = self.path()
        return (size_of([*path, "@items"]) if path else None) or UNKNOWN


class Call(NamedTuple):
    """One call with one of its overloads."""

    function: str
    overload: str
    target: Sized | None
    arguments: tuple[Sized, ...]
    is_newest: bool = False
    """Whether it is cel-go 0.29, which counts ``matches(text, pattern)`` as the method."""


class Estimate(NamedTuple):
    """The cost of the call itself, and the size of its result where the call says."""

    cost: Span
    size: Span | None = None


_UNIT: Final = Estimate(ONE)
_Rule = Callable[[Call], Estimate | None]


def call_cost(call: Call) -> Estimate:
    """The cost of a call beside that of its operands."""
    for rules, key in (
        (_BY_EXTENSION, call.overload),
        (_BY_FUNCTION, call.function),
        (_BY_OVERLOAD, call.overload),
    ):
        rule = rules.get(key)
        found = rule(call) if rule else None
        if found is not None:
            return found
    return _UNIT


# Kubernetes, by function.


def _traversal(of: Sized) -> Span:
    return of.size.scaled(_TENTH)


def _unit(call: Call) -> Estimate:
    return _UNIT


def _aggregate(call: Call) -> Estimate | None:
    target = call.target
    if target is None:
        return None
    items = target.items
    if items is None:
        return Estimate(target.size if call.function == "includes" else _traversal(target))
    cost = ONE
    if target.type.parameters[0].kind in ("string", "bytes"):
        cost = cost.plus(items.scaled(_TENTH))
    return Estimate(target.size.times(cost))


def _parsed_url(call: Call) -> Estimate | None:
    if len(call.arguments) != 1:
        return None
    size = call.arguments[0].size
    return Estimate(size.scaled(_TENTH), size)


def _changed_text(call: Call) -> Estimate | None:
    if call.target is None:
        return None
    size = call.target.size
    return Estimate(size.scaled(_TENTH), size)


def _replace(call: Call) -> Estimate | None:
    if call.target is None or len(call.arguments) < 2:
        return None
    text, old, new = call.target.size, call.arguments[0].size, call.arguments[1].size
    if old.low == 0:
        most, kept_most = min(text.high + 1, MOST), text.high
    elif new.high <= old.low:
        most, kept_most = 0, text.high
    else:
        most, kept_most = _ratio(text.high, old.low), 0
    if old.high == 0:
        least, kept_least = min(text.low + 1, MOST), text.low
    elif old.high <= new.low:
        least, kept_least = 0, text.low
    else:
        least, kept_least = _ratio(text.low, old.high), 0
    size = Span(least, most).times(new).plus(Span(kept_least, kept_most))
    return Estimate(text.scaled(2 * _TENTH), size)


def _ratio(size: int, part: int) -> int:
    quotient = float(size) / float(part)
    whole = int(quotient)
    rounded = whole + (quotient > whole)
    return rounded if rounded <= MOST else 1 << 63  # what amd64 makes of a float too large


def _split(call: Call) -> Estimate | None:
    if call.target is None:
        return None
    size = call.target.size
    most = size.high
    if len(call.arguments) > 1:
        most = _int_literal(call.arguments[1], most)
    return Estimate(size.scaled(2 * _TENTH), Span(0, most))


def _int_literal(of: Sized, otherwise: int) -> int:
    node = of.node
    if isinstance(node, tree.Literal) and node.kind == "int" and isinstance(node.value, int):
        return node.value & MOST
    return otherwise


def _join(call: Call) -> Estimate | None:
    if call.target is None:
        return None
    count, items = call.target.size, call.target.items
    size = ZERO if items is None else count.times(items)
    if call.arguments:
        between = Span(max(0, count.low - 1), max(0, count.high - 1))
        size = size.plus(call.arguments[0].size.times(between))
    return Estimate(size.scaled(_TENTH), size)


def _find(call: Call) -> Estimate | None:
    if call.target is None or not call.arguments:
        return None
    size = call.target.size
    text = size.plus(ONE).scaled(_TENTH)
    pattern = call.arguments[0].size.scaled(_QUARTER)
    return Estimate(text.times(pattern), Span(0, size.high))


def _parsed(call: Call) -> Estimate | None:
    return Estimate(_traversal(call.arguments[0])) if call.arguments else None


def _ip(call: Call) -> Estimate | None:
    return _UNIT if call.overload == "cidr_ip" else _parsed(call)


def _canonical(call: Call) -> Estimate | None:
    return Estimate(call.arguments[0].size.scaled(2 * _TENTH)) if call.arguments else None


def _contains_ip(call: Call) -> Estimate | None:
    if not call.arguments:
        return None
    cost = _ADDRESS_BYTES.plus(_ADDRESS_BYTES).scaled(_TENTH)
    if call.overload == "cidr_contains_ip_string":
        cost = cost.plus(_traversal(call.arguments[0]))
    return Estimate(cost)


def _contains_cidr(call: Call) -> Estimate | None:
    if not call.arguments:
        return None
    cost = _ADDRESS_BYTES.plus(_ADDRESS_BYTES).scaled(_TENTH)
    cost = cost.plus(_ADDRESS_BYTES.scaled(_TENTH)).plus(ONE)
    if call.overload == "cidr_contains_cidr_string":
        cost = cost.plus(_traversal(call.arguments[0]))
    return Estimate(cost)


def _validate(call: Call) -> Estimate | None:
    if not call.arguments:
        return None
    return Estimate(_traversal(call.arguments[0]).scaled(_FORMAT_PATTERN_LENGTH * _QUARTER))


def _equal(call: Call) -> Estimate | None:
    """Kubernetes' own types, of which most compare at once."""
    left, right = call.arguments
    kind = left.type
    if kind is not right.type:
        return None
    if kind in (types.IP, types.CIDR, types.QUANTITY, types.SEMVER):
        return _UNIT
    if kind is types.NAMED_FORMAT:
        return Estimate(Span(1, _FORMAT_LENGTH).scaled(_TENTH))
    if kind is types.URL:
        most = right.known.high if right.known else 1
        return Estimate(Span(1, most).scaled(_TENTH))
    return None


def _includes(call: Call) -> Estimate | None:
    """Of DRA in 1.36; in 1.37 it is one of Kubernetes' functions of lists."""
    if call.overload != "dra_includes_dyn_dyn":
        return _aggregate(call)
    return Estimate(Span(0, _INCLUDED_AT_MOST)) if call.target is not None else None


def _permission(call: Call) -> Estimate:
    return Estimate(_CHECK_COST)


def _selector(call: Call) -> Estimate | None:
    if len(call.arguments) != 1:
        return None
    size = call.arguments[0].size
    requirements = size.scaled(0.5).scaled(50.0)
    return Estimate(fixed(10).plus(size.scaled(_TENTH)).plus(requirements))


_BY_FUNCTION: Final[dict[str, _Rule]] = {
    "check": _permission,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _aggregate),
    "url": _parsed_url,
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _changed_text),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _find,
    "findAll": _find,
    **dict.fromkeys(("cidr", "isIP", "isCIDR"), _parsed),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _parsed),
    "ip": _ip,
    "ip.isCanonical": _canonical,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equal,
    "includes": _includes,
}


# cel-go's libraries, by overload.


def _listed(factor: float, size: Span) -> Estimate:
    """A call that makes a list."""
    return Estimate(size.scaled(factor).plus(ONE).plus(fixed(10)), size)


def _index_of(of: Sized, otherwise: int) -> int:
    """The value of an int literal that is used as a count; below zero it counts as zero."""
    node = of.node
    if isinstance(node, tree.Literal) and node.kind == "int" and isinstance(node.value, int):
        return max(0, node.value)
    return otherwise


def _slice(call: Call) -> Estimate | None:
    if call.target is None:
        return None
    start = _index_of(call.arguments[0], 0)
    end = _index_of(call.arguments[1], call.target.size.high)
    return _listed(1, fixed(end - start))


def _range(call: Call) -> Estimate:
    return _listed(1, fixed(_index_of(call.arguments[0], MOST)))


def _reverse(call: Call) -> Estimate | None:
    return _listed(1, call.target.size) if call.target else None


def _flatten(call: Call) -> Estimate | None:
    if call.target is None:
        return None
    depth = _index_of(call.arguments[0], MOST) if call.arguments else 1
    return _listed(float(depth), call.target.size)


def _distinct(call: Call) -> Estimate | None:
    return _listed(2.0, call.target.size.times(call.target.size)) if call.target else None


def _sort(call: Call) -> Estimate | None:
    sorted_by = call.arguments[0] if call.arguments else call.target
    if sorted_by is None:
        return None
    is_text = call.overload.startswith(("list_string_", "list_bytes_"))
    return _listed(2.0 + _TENTH if is_text else 2.0, sorted_by.size.times(sorted_by.size))


def _sets(factor: float) -> _Rule:
    def cost(call: Call) -> Estimate:
        left, right = call.arguments
        return Estimate(left.size.times(right.size).scaled(factor).plus(ONE))

    return cost


_SORTED: Final = (
    "int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp",
    "string", "bytes",
)  # fmt: skip
_BY_EXTENSION: Final[dict[str, _Rule]] = {
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


# cel-go itself, by overload.


def _format(call: Call) -> Estimate | None:
    return Estimate(call.target.computed.scaled(_TENTH)) if call.target else None


def _to_bytes(call: Call) -> Estimate:
    size = call.arguments[0].computed
    return Estimate(size.scaled(_TENTH), Span(size.low, (size.high * 4) & MOST))


def _to_string(call: Call) -> Estimate:
    size = call.arguments[0].computed
    return Estimate(size.scaled(_TENTH), Span(size.low // 4, size.high))


def _quote(call: Call) -> Estimate:
    size = call.arguments[0].computed
    longest = (size.high * 2 + 2) & MOST
    return Estimate(size.scaled(_TENTH), Span((size.low + 2) & MOST, longest))


def _affix(call: Call) -> Estimate:
    return Estimate(call.arguments[0].computed.scaled(_TENTH))


def _in_list(call: Call) -> Estimate:
    return Estimate(call.arguments[1].computed.scaled(1))


def _matches(call: Call) -> Estimate | None:
    operands = (call.target, *call.arguments) if call.target else call.arguments
    if len(operands) != 2 or (call.overload == "matches" and not call.is_newest):
        return None
    text = operands[0].computed.plus(ONE).scaled(_TENTH)
    return Estimate(text.times(operands[1].computed.scaled(_QUARTER)))


def _contains(call: Call) -> Estimate | None:
    if call.target is None:
        return None
    text = call.target.computed.scaled(_TENTH)
    return Estimate(text.times(call.arguments[0].computed.scaled(_TENTH)))


def _add_list(call: Call) -> Estimate:
    left, right = call.arguments
    return Estimate(ONE, left.computed.plus(right.computed))


def _add_text(call: Call) -> Estimate:
    left, right = call.arguments
    size = left.computed.plus(right.computed)
    return Estimate(size.scaled(_TENTH), size)


def _compare(call: Call) -> Estimate:
    left, right = call.arguments
    most = min(left.computed.high, right.computed.high)
    return Estimate(Span(1 if most > 0 else 0, most).scaled(_TENTH))


_ORDERS: Final = ("less", "less_equals", "greater", "greater_equals")
_BY_OVERLOAD: Final[dict[str, _Rule]] = {
    "string_format": _format,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_string,
    "strings_quote": _quote,
    "starts_with_string": _affix,
    "ends_with_string": _affix,
    "in_list": _in_list,
    "matches": _matches,
    "matches_string": _matches,
    "contains_string": _contains,
    "add_list": _add_list,
    "add_string": _add_text,
    "add_bytes": _add_text,
    "equals": _compare,
    "not_equals": _compare,
    **{f"{order}_{kind}": _compare for order in _ORDERS for kind in ("string", "bytes")},
}
