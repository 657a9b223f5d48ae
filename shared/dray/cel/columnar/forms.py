"""The forms of clause that are decided for all values, and for all constants, at once.

A *presence* asks whether a device has a property: ``has(…)``, ``"model" in …``. A *comparison*
sets a subject, which reads the device, against constants: ``model == "A100"``,
``vram.compareTo(quantity("16Gi")) >= 0``, ``serial in ["1", "2"]``. Clauses that differ only in
their constants are of one *form* and treated together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import Final

from dray.cel import tree
from dray.cel.columnar.facts import Path
from dray.cel.columnar.reads import presence_of
from dray.cel.tree import Expr
from dray.cel.values import Value
from dray.domain.quantities import NANO, InvalidQuantityError, Quantity, parse_quantity

ERROR: Final = 0
TRUE: Final = 1
FALSE: Final = 2
"""Verdicts. TRUE and FALSE are bits, so that ``&&`` is an *and* of the first and an *or* of the
second: an error, having neither, gives way to FALSE as CEL wants it."""
STOPPED: Final = 4
"""A bit of its own, which every gate passes on: what ends an evaluation is not absorbed, but it may
not have been reached. Only the selector as a whole can tell."""

Signs = tuple[int, int, int]
"""The verdicts where the subject is less than, equal to, and greater than the constant."""

_OPERATORS: Final[dict[str, Callable[[int, int], bool]]] = {
    "==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge,
}  # fmt: skip
_FLIPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
EXACT_INT: Final = 2**53
"""Up to here an int and a double compare as two doubles do."""
INT64: Final = 2**63 - 1
"""Whole units of a quantity up to here have a column of numbers."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A subject and what it is compared with."""

    subject: Expr
    form: str
    """Comparisons of the same subject, form and kind differ in their constants alone."""
    kind: str
    """What the constants are: string, int, double or quantity."""
    signs: Signs
    constants: tuple[Value, ...]
    """Several for ``in``, of which any may be equal."""


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether a device has a property."""

    subject: Expr
    path: Path


Form = Comparison | Presence


def form_of(node: Expr) -> Form | None:
    """The form that ``node`` has, if it has one."""
    path = presence_of(node)
    return comparison_of(node) if path is None else Presence(node, path)


def comparison_of(node: Expr) -> Comparison | None:
    """The comparison that ``node`` is, or None where it has another form."""
    match node:
        case tree.Binary(operator="in", left=subject, right=tree.ListLiteral(items=items)):
            return _membership(subject, items)
        case tree.Binary(operator=operator, left=left, right=right) if operator in _OPERATORS:
            if _is_constant(right):
                return _binary(operator, left, right, operator)
            if _is_constant(left):
                return _binary(_FLIPPED[operator], right, left, f"constant {operator}")
        case tree.Call(function="isGreaterThan" | "isLessThan" as name, target=target, arguments=a):
            amount = _quantity(a[0]) if len(a) == 1 else None
            if target is not None and amount is not None:
                sign = 1 if name == "isGreaterThan" else -1
                return Comparison(target, name, "quantity", _signs(lambda s: s == sign), (amount,))
    return None


def _binary(operator: str, subject: Expr, constant: Expr, form: str) -> Comparison | None:
    value = _value(constant)
    test = _OPERATORS[operator]
    match subject:
        case tree.Call(function="compareTo", target=target, arguments=(other,)):
            amount = _quantity(other)
            if target is not None and amount is not None and type(value) is int:
                signs = _signs(lambda sign: test(sign, value))
                return Comparison(target, f"compareTo {form} {value}", "quantity", signs, (amount,))
    if type(value) is str and operator not in ("==", "!="):
        return None  # strings order by code point, which is left to the exact evaluator
    kind = _kind(value)
    if kind is None:
        return None
    return Comparison(subject, form, kind, _signs(lambda sign: test(sign, 0)), (value,))


def _membership(subject: Expr, items: tuple[tree.ListItem, ...]) -> Comparison | None:
    values = [_value(item.value) for item in items if not item.optional]
    kinds = {_kind(value) for value in values}
    if len(values) != len(items) or len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind is None:
        return None
    return Comparison(subject, "in", kind, (FALSE, TRUE, FALSE), tuple(values))


def _signs(test: Callable[[int], bool]) -> Signs:
    less, equal, greater = (TRUE if test(sign) else FALSE for sign in (-1, 0, 1))
    return less, equal, greater


def _kind(value: Value) -> str | None:
    if type(value) is str:
        return "string"
    if type(value) is int and abs(value) <= EXACT_INT:
        return "int"
    return "double" if type(value) is float and value == value else None


def _is_constant(node: Expr) -> bool:
    return _value(node) is not None


def _value(node: Expr) -> Value:
    """The value of a literal, a minus sign before it included; None where it is no literal."""
    match node:
        case tree.Literal(kind="string" | "int" | "double", value=value):
            return value
        case tree.Unary(operator="-", operand=tree.Literal(kind="int" | "double", value=value)):
            return -value  # type: ignore[operator]
        case _:
            return None


def _quantity(node: Expr) -> Quantity | None:
    """The amount of ``quantity("…")`` with a literal that is one."""
    match node:
        case tree.Call(
            function="quantity", target=None, arguments=(tree.Literal(value=str() as text),)
        ):
            try:
                amount = parse_quantity(text)
            except InvalidQuantityError:
                return None
            return amount if abs(amount.nano) // NANO < INT64 else None
        case _:
            return None
