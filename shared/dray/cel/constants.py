"""Conversions of literals, which Kubernetes evaluates when it compiles."""

from typing import Final

from dray.cel import tree
from dray.cel.closures import closure
from dray.cel.device import DeviceView
from dray.cel.errors import CelEvaluationError, CelTypeError
from dray.cel.frame import Frame, Scope
from dray.cel.tree import Expr

_CONVERSIONS: Final = ("bool", "bytes", "double", "dyn", "int", "string", "type", "uint")


def check_constants(root: Expr, source: str) -> None:
    """Refuse conversions of literals that fail on every device, such as ``uint(-1)``.

    Raises:
        CelTypeError: there is one.
    """
    ahead = [root]
    while ahead:
        node = ahead.pop()
        if _is_constant_conversion(node):
            try:
                closure(node, Scope())(Frame(DeviceView("")))
            except CelEvaluationError as error:
                place = node.place
                raise CelTypeError(str(error), source, place.line, place.column) from None
        ahead.extend(tree.children(node))


def _is_constant_conversion(node: Expr) -> bool:
    return (
        isinstance(node, tree.Call)
        and node.target is None
        and node.function in _CONVERSIONS
        and len(node.arguments) == 1
        and _is_constant(node.arguments[0])
    )


def _is_constant(node: Expr) -> bool:
    match node:
        case tree.Literal():
            return True
        case tree.ListLiteral():
            return all(_is_constant(item.value) and not item.optional for item in node.items)
        case tree.MapLiteral():
            return all(
                _is_constant(entry.key) and _is_constant(entry.value) and not entry.optional
                for entry in node.entries
            )
        case _:
            return _is_constant_conversion(node)
