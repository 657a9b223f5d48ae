"""The static check of ``'…'.format([…])``: each clause against the type of its argument."""

import re
from typing import TYPE_CHECKING, Final

from dray.cel import tree
from dray.cel.errors import Refusal
from dray.cel.tree import Expr, Place

if TYPE_CHECKING:
    from dray.cel.check import Checked

_CLAUSE: Final = re.compile(r"%(?:%|(\.[0-9]*)?([\s\S])?)")
_UNPARSED: Final = "could not parse formatting clause"
_KINDS: Final = {
    "d": ("int", "uint"),
    "f": ("double", "string"),
    "e": ("double", "string"),
    "b": ("int", "uint", "bool"),
    "o": ("int", "uint"),
    "x": ("int", "uint", "string", "bytes"),
    "s": (
        "list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes",
        "duration", "type", "null",
    ),
}  # fmt: skip
_MEANT_FOR: Final = {
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "o": "octal clause can only be used on integers",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
    "types, durations, and timestamps",
}


def check_format(checked: "Checked", call: tree.Call) -> Refusal | None:
    """What is wrong with a format whose text and list of arguments are both literals."""
    target, values = call.target, call.arguments[0]
    if not (isinstance(target, tree.Literal) and isinstance(target.value, str)):
        return None
    if not isinstance(values, tree.ListLiteral):
        return None
    arguments = [item.value for item in values.items]
    used = 0
    for match in _CLAUSE.finditer(target.value):
        if match.group() != "%%":
            refusal = _in_clause(checked, match, arguments, used, call.place)
            if refusal is not None:
                return refusal
            used += 1
    if len(arguments) <= used:
        return None
    reason = "too many arguments supplied to string.format "
    return Refusal(reason + f"(expected {used}, got {len(arguments)})", call.place)


def _in_clause(
    checked: "Checked", clause: re.Match[str], arguments: list[Expr], at: int, place: Place
) -> Refusal | None:
    precision, verb = clause.groups()
    if verb is None and precision is None:
        return Refusal("unexpected end of string", place)
    if at >= len(arguments):
        return Refusal(f"index {at} out of range", place)
    if precision == "." or verb is None:
        why = "could not find end of precision specifier"
        if verb is not None:
            why = 'error while converting precision to integer: strconv.Atoi: parsing "": '
            why += "invalid syntax"
        return Refusal(f"{_UNPARSED}: error while parsing precision: {why}", place)
    kind = verb.lower() if verb == "X" else verb
    if kind not in _KINDS:
        return Refusal(f'{_UNPARSED}: unrecognized formatting clause "{verb}"', place)
    bad = _unfit(checked, arguments[at], _KINDS[kind], deep=kind == "s")
    if bad is None:
        return None
    given = checked.type_of(bad).name
    return Refusal(f"error during formatting: {_MEANT_FOR[kind]}, was given {given}", bad.place)


def _unfit(checked: "Checked", node: Expr, kinds: tuple[str, ...], *, deep: bool) -> Expr | None:
    """The node, or one inside it, whose type the clause can't write."""
    found = checked.type_of(node)
    if found.kind != "dyn" and found.kind not in kinds:
        return node
    if not deep:
        return None
    inside: tuple[Expr, ...] = ()
    if isinstance(node, tree.ListLiteral | tree.MapLiteral):
        inside = tree.children(node)
    wrong = (_unfit(checked, child, kinds, deep=True) for child in inside)
    return next((child for child in wrong if child is not None), None)
