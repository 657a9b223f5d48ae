"""Tree to Python closures: each node becomes a function of a frame.

The static check comes first; here only what it can't know is left, and that fails at run time
as in cel-go: wrong dynamic types, absent keys, overflow. Each closure adds the cost that
Kubernetes counts for its node.
"""

from collections.abc import Callable
from typing import Any, Final

from dray.cel import tree
from dray.cel.check import Checked
from dray.cel.folding import Unknown, constant
from dray.cel.frame import Closure, Frame, Scope
from dray.cel.minors import NEWER
from dray.cel.rules import calls, operators, paths, values
from dray.cel.tree import Expr
from dray.cel.values import NONE, Optional, Value, rewrapped


class Compiler:
    """Makes the closures of one checked expression."""

    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.minor = checked.environment.minor
        self.scope = Scope()
        """The outermost: no local variables."""

    def closure(self, node: Expr, scope: Scope) -> Closure:
        """The function that evaluates ``node``, in which ``scope`` are the local variables."""
        try:
            value = constant(node, scope.names)
        except Unknown:
            return _RULES[node.__class__](self, node, scope)
        return lambda frame: value

    def overload(self, node: tree.Node) -> str | None:
        """The one overload that a call can dispatch to, if the types tell."""
        found = self.checked.overloads_of(node)
        return found[0] if len(found) == 1 else None

    def passed(self, closure: Closure) -> Closure:
        """``closure``, whose value passes through a variable or a ternary."""
        if self.minor >= NEWER:
            return closure

        def read(frame: Frame) -> Value:
            value = closure(frame)
            return rewrapped(value) if type(value) is Optional and value is not NONE else value

        return read


_RULES: Final[dict[type, Callable[[Compiler, Any, Scope], Closure]]] = {
    tree.Ident: paths.path,
    tree.Select: paths.path,
    tree.Index: paths.path,
    tree.Conditional: paths.conditional,
    tree.Has: paths.has,
    tree.Unary: operators.unary,
    tree.Binary: operators.binary,
    tree.Logical: operators.logical,
    tree.Call: calls.call,
    tree.ListLiteral: values.list_literal,
    tree.MapLiteral: values.map_literal,
    tree.Message: values.message,
    tree.Bind: values.bind,
    tree.Macro: values.macro,
}
