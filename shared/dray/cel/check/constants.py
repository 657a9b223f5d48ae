"""Values that do not depend on a device: they cost nothing, because Kubernetes computes them once.

These are only literals, names of types, lists and maps of constants, conversions of one constant,
and ``x in []``, which is false. Kubernetes does not compute ``1 + 1`` in advance, either.
"""

from typing import Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library.functions import FUNCTIONS
from dray.cel.library.values import TypeValue, Uint, Value, as_key
from dray.cel.limits import StoppedError
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr
from dray.cel.types.types import TYPE_NAMES

CONVERSIONS: Final = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint")
)


_DOTTED: Final = frozenset(name.rpartition(".")[2] for name in TYPE_NAMES if "." in name)
"""The last parts of types' names that look like fields."""


class Unknown(Exception):
    """The value is only known on a device."""


def constant(node: Expr, hidden: frozenset[str] = frozenset()) -> Value:
    """The value of ``node``. ``hidden``: variables that have the same name as a type.

    Raises:
        Unknown: it is not a constant, or computing it fails.
    """
    match node:
        case tree.Literal():
            return Uint(node.value) if node.kind == "uint" else node.value  # type: ignore[arg-type]
        case tree.Ident():
            return _type(node, hidden)
        case tree.Select(field=field) if field in _DOTTED:
            return _type(node, hidden)
        case tree.ListLiteral() if not any(item.optional for item in node.items):
            return [constant(item.value, hidden) for item in node.items]
        case tree.MapLiteral() if not any(entry.optional for entry in node.entries):
            return _map(node, hidden)
        case tree.Binary(operator="in", right=tree.ListLiteral(items=())):
            return False
        case tree.Call(target=None, arguments=(only,)):
            return _converted(node.function.removeprefix("."), only, hidden)
        case _:
            raise Unknown


def is_constant(node: Expr, hidden: frozenset[str] = frozenset()) -> bool:
    """Whether the value of ``node`` is known without a device."""
    try:
        constant(node, hidden)
    except Unknown:
        return False
    return True


def _type(node: tree.Ident | tree.Select, hidden: frozenset[str]) -> TypeValue:
    name = _dotted(node)
    found = None if name in hidden or name.partition(".")[0] in hidden else TYPE_NAMES.get(name)
    if found is None:
        raise Unknown
    return TypeValue(found.parameters[0].name)


def _dotted(node: Expr) -> str:
    if isinstance(node, tree.Ident):
        return node.name.removeprefix(".")
    if isinstance(node, tree.Select) and not node.optional:
        return f"{_dotted(node.operand)}.{node.field}"
    raise Unknown


def _map(node: tree.MapLiteral, hidden: frozenset[str]) -> Value:
    pairs = [(constant(e.key, hidden), constant(e.value, hidden)) for e in node.entries]
    try:
        return {as_key(key): value for key, value in pairs}
    except StoppedError:
        raise Unknown from None


def _converted(function: str, argument: Expr, hidden: frozenset[str]) -> Value:
    if function not in CONVERSIONS:
        raise Unknown
    try:
        return FUNCTIONS[function](constant(argument, hidden))
    except CelEvaluationError:
        raise Unknown from None
