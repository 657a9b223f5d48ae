"""The cost of calls by Kubernetes' own estimator, by the name of the function."""

from typing import Final

from dray.cel.cost.call import QUARTER, TENTH, UNIT, Estimate, EstimatedCall, Rule, Sized
from dray.cel.cost.sizes import MOST, ONE, ZERO, SizeRange, fixed
from dray.cel.syntax import tree
from dray.cel.types import types

_FORMAT_LENGTH: Final = 64
_FORMAT_PATTERN_LENGTH: Final = 128
_CHECK_COST: Final = fixed(350_000)
_INCLUDED_AT_MOST: Final = 48
_ADDRESS_BYTES: Final = SizeRange(4, 16)


def _traversal(of: Sized) -> SizeRange:
    return of.size.scaled(TENTH)


def _aggregate(call: EstimatedCall) -> Estimate | None:
    target = call.target
    if target is None:
        return None
    items = target.items
    if items is None:
        return Estimate(target.size if call.function == "includes" else _traversal(target))
    cost = ONE
    if target.type.parameters[0].kind in ("string", "bytes"):
        cost = cost.plus(items.scaled(TENTH))
    return Estimate(target.size.times(cost))


def _parsed_url(call: EstimatedCall) -> Estimate | None:
    if len(call.arguments) != 1:
        return None
    size = call.arguments[0].size
    return Estimate(size.scaled(TENTH), size)


def _changed_text(call: EstimatedCall) -> Estimate | None:
    if call.target is None:
        return None
    size = call.target.size
    return Estimate(size.scaled(TENTH), size)


def _replace(call: EstimatedCall) -> Estimate | None:
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
    size = SizeRange(least, most).times(new).plus(SizeRange(kept_least, kept_most))
    return Estimate(text.scaled(2 * TENTH), size)


def _ratio(size: int, part: int) -> int:
    quotient = float(size) / float(part)
    whole = int(quotient)
    rounded = whole + (quotient > whole)
    return rounded if rounded <= MOST else 1 << 63  # amd64's result for a float that is too large


def _split(call: EstimatedCall) -> Estimate | None:
    if call.target is None:
        return None
    size = call.target.size
    most = size.high
    if len(call.arguments) > 1:
        most = _int_literal(call.arguments[1], most)
    return Estimate(size.scaled(2 * TENTH), SizeRange(0, most))


def _int_literal(of: Sized, otherwise: int) -> int:
    node = of.node
    if isinstance(node, tree.Literal) and node.kind == "int" and isinstance(node.value, int):
        return node.value & MOST
    return otherwise


def _join(call: EstimatedCall) -> Estimate | None:
    if call.target is None:
        return None
    count, items = call.target.size, call.target.items
    size = ZERO if items is None else count.times(items)
    if call.arguments:
        between = SizeRange(max(0, count.low - 1), max(0, count.high - 1))
        size = size.plus(call.arguments[0].size.times(between))
    return Estimate(size.scaled(TENTH), size)


def _find(call: EstimatedCall) -> Estimate | None:
    if call.target is None or not call.arguments:
        return None
    size = call.target.size
    text = size.plus(ONE).scaled(TENTH)
    pattern = call.arguments[0].size.scaled(QUARTER)
    return Estimate(text.times(pattern), SizeRange(0, size.high))


def _parsed(call: EstimatedCall) -> Estimate | None:
    return Estimate(_traversal(call.arguments[0])) if call.arguments else None


def _ip(call: EstimatedCall) -> Estimate | None:
    return UNIT if call.overload == "cidr_ip" else _parsed(call)


def _canonical(call: EstimatedCall) -> Estimate | None:
    return Estimate(call.arguments[0].size.scaled(2 * TENTH)) if call.arguments else None


def _contains_ip(call: EstimatedCall) -> Estimate | None:
    if not call.arguments:
        return None
    cost = _ADDRESS_BYTES.plus(_ADDRESS_BYTES).scaled(TENTH)
    if call.overload == "cidr_contains_ip_string":
        cost = cost.plus(_traversal(call.arguments[0]))
    return Estimate(cost)


def _contains_cidr(call: EstimatedCall) -> Estimate | None:
    if not call.arguments:
        return None
    cost = _ADDRESS_BYTES.plus(_ADDRESS_BYTES).scaled(TENTH)
    cost = cost.plus(_ADDRESS_BYTES.scaled(TENTH)).plus(ONE)
    if call.overload == "cidr_contains_cidr_string":
        cost = cost.plus(_traversal(call.arguments[0]))
    return Estimate(cost)


def _validate(call: EstimatedCall) -> Estimate | None:
    if not call.arguments:
        return None
    return Estimate(_traversal(call.arguments[0]).scaled(_FORMAT_PATTERN_LENGTH * QUARTER))


def _equal(call: EstimatedCall) -> Estimate | None:
    """Equality of Kubernetes' own types. Comparing most of them has a constant cost."""
    left, right = call.arguments
    kind = left.type
    if kind is not right.type:
        return None
    if kind in (types.IP, types.CIDR, types.QUANTITY, types.SEMVER):
        return UNIT
    if kind is types.NAMED_FORMAT:
        return Estimate(SizeRange(1, _FORMAT_LENGTH).scaled(TENTH))
    if kind is types.URL:
        most = right.known.high if right.known else 1
        return Estimate(SizeRange(1, most).scaled(TENTH))
    return None


def _includes(call: EstimatedCall) -> Estimate | None:
    """A function of DRA in 1.36, and of Kubernetes' list library in 1.37."""
    if call.overload != "dra_includes_dyn_dyn":
        return _aggregate(call)
    return Estimate(SizeRange(0, _INCLUDED_AT_MOST)) if call.target is not None else None


def _permission(call: EstimatedCall) -> Estimate:
    return Estimate(_CHECK_COST)


def _selector(call: EstimatedCall) -> Estimate | None:
    if len(call.arguments) != 1:
        return None
    size = call.arguments[0].size
    requirements = size.scaled(0.5).scaled(50.0)
    return Estimate(fixed(10).plus(size.scaled(TENTH)).plus(requirements))


BY_FUNCTION: Final[dict[str, Rule]] = {
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
