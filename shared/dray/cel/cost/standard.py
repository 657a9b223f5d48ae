"""The cost of calls by cel-go itself, by the name of the overload."""

from typing import Final

from dray.cel.cost.call import QUARTER, TENTH, Estimate, EstimatedCall, Rule
from dray.cel.cost.sizes import MOST, ONE, SizeRange


def _format(call: EstimatedCall) -> Estimate | None:
    return Estimate(call.target.computed.scaled(TENTH)) if call.target else None


def _to_bytes(call: EstimatedCall) -> Estimate:
    size = call.arguments[0].computed
    return Estimate(size.scaled(TENTH), SizeRange(size.low, (size.high * 4) & MOST))


def _to_string(call: EstimatedCall) -> Estimate:
    size = call.arguments[0].computed
    return Estimate(size.scaled(TENTH), SizeRange(size.low // 4, size.high))


def _quote(call: EstimatedCall) -> Estimate:
    size = call.arguments[0].computed
    longest = (size.high * 2 + 2) & MOST
    return Estimate(size.scaled(TENTH), SizeRange((size.low + 2) & MOST, longest))


def _affix(call: EstimatedCall) -> Estimate:
    return Estimate(call.arguments[0].computed.scaled(TENTH))


def _in_list(call: EstimatedCall) -> Estimate:
    return Estimate(call.arguments[1].computed.scaled(1))


def _matches(call: EstimatedCall) -> Estimate | None:
    operands = (call.target, *call.arguments) if call.target else call.arguments
    if len(operands) != 2 or (call.overload == "matches" and not call.is_newest):
        return None
    text = operands[0].computed.plus(ONE).scaled(TENTH)
    return Estimate(text.times(operands[1].computed.scaled(QUARTER)))


def _contains(call: EstimatedCall) -> Estimate | None:
    if call.target is None:
        return None
    text = call.target.computed.scaled(TENTH)
    return Estimate(text.times(call.arguments[0].computed.scaled(TENTH)))


def _add_list(call: EstimatedCall) -> Estimate:
    left, right = call.arguments
    return Estimate(ONE, left.computed.plus(right.computed))


def _add_text(call: EstimatedCall) -> Estimate:
    left, right = call.arguments
    size = left.computed.plus(right.computed)
    return Estimate(size.scaled(TENTH), size)


def _compare(call: EstimatedCall) -> Estimate:
    left, right = call.arguments
    most = min(left.computed.high, right.computed.high)
    return Estimate(SizeRange(1 if most > 0 else 0, most).scaled(TENTH))


_ORDERS: Final = ("less", "less_equals", "greater", "greater_equals")
BY_OVERLOAD: Final[dict[str, Rule]] = {
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
