"""What Kubernetes evaluates when it compiles: conversions of literals, and literal patterns."""

from typing import TYPE_CHECKING, Final

from dray.cel import tree
from dray.cel.errors import CelEvaluationError, CelTypeError
from dray.cel.tree import Expr

if TYPE_CHECKING:
    from dray.cel.values import Value

_CONVERSIONS: Final = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint")
)
_PATTERNS: Final = frozenset(("matches", "find", "findAll"))
_FOLDED: Final = _CONVERSIONS | _PATTERNS


class _NotConstant(Exception):
    """The value is only known on a device."""


def check_constants(root: Expr, source: str) -> None:
    """Refuse conversions of literals that fail on every device, such as ``uint(-1)``.

    Raises:
        CelTypeError: there is one, or a literal pattern that is none.
    """
    ahead = [root]
    while ahead:
        node = ahead.pop()
        if node.__class__ is tree.Call and node.function in _FOLDED:  # type: ignore[union-attr]
            _check_call(node, source)  # type: ignore[arg-type]
        ahead.extend(tree.children(node))


def _check_call(call: tree.Call, source: str) -> None:
    try:
        if call.function in _PATTERNS:
            _check_pattern(call)
        else:
            _value(call)
    except _NotConstant:
        return
    except CelEvaluationError as error:
        place = call.place
        raise CelTypeError(str(error), source, place.line, place.column) from None


def _check_pattern(call: tree.Call) -> None:
    from dray.cel.patterns import PatternError, compiled

    at = 0 if call.target is not None else 1
    pattern = _value(call.arguments[at]) if len(call.arguments) > at else None
    if not isinstance(pattern, str):
        return
    try:
        compiled(pattern)
    except PatternError as error:
        raise CelEvaluationError(str(error)) from None


def _value(node: Expr) -> "Value":
    """The value of a literal or of a conversion of one.

    Raises:
        _NotConstant: it is something else.
        CelEvaluationError: the conversion fails.
    """
    match node:
        case tree.Literal():
            return _literal(node)
        case tree.Call(function=name, target=None, arguments=(argument,)) if name in _CONVERSIONS:
            from dray.cel.functions import FUNCTIONS

            return FUNCTIONS[name](_value(argument))
        case tree.ListLiteral() if not any(item.optional for item in node.items):
            return [_value(item.value) for item in node.items]
        case tree.MapLiteral() if not any(entry.optional for entry in node.entries):
            return _map(node)
        case _:
            raise _NotConstant


def _literal(node: tree.Literal) -> "Value":
    if node.kind != "uint":
        return node.value
    from dray.cel.values import Uint

    return Uint(node.value)  # type: ignore[arg-type]


def _map(node: tree.MapLiteral) -> "Value":
    from dray.cel.values import as_key

    pairs = [(_value(entry.key), _value(entry.value)) for entry in node.entries]
    try:
        return {as_key(key): value for key, value in pairs}
    except CelEvaluationError:
        raise _NotConstant from None
