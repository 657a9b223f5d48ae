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
    while isinstance(node, tree.Call):
        if node.target is not None or node.function not in _CONVERSIONS or not node.arguments:
            return False
        node = node.arguments[0]
        if isinstance(node, tree.Literal):
            return True
    return False
