"""Makes closures from the nodes of a checked expression, with one rule for each kind of node."""

from collections.abc import Callable, Mapping
from typing import Any

from dray.cel.check.check_result import CheckedExpr
from dray.cel.check.constants import Unknown, constant
from dray.cel.eval.frame import Closure, Frame, Scope
from dray.cel.eval.version_overrides import NEWER
from dray.cel.library.values import NONE, Optional, Value, rewrapped
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr, SyntaxNode


class Compiler:
    """Makes the closures for one checked expression."""

    def __init__(self, checked: CheckedExpr, rules: "Rules") -> None:
        self._rules = rules
        self.checked = checked
        self.minor = checked.environment.minor
        self.scope = Scope()
        """The outermost scope: no local variables."""

    def closure(self, node: Expr, scope: Scope) -> Closure:
        """The function that evaluates ``node``. ``scope``: its local variables."""
        try:
            value = constant(node, scope.names)
        except Unknown:
            return self._rules[node.__class__](self, node, scope)
        return lambda frame: value

    def overload(self, node: tree.SyntaxNode) -> str | None:
        """The one overload that a call can dispatch to, if the types determine it."""
        found = self.checked.overloads_of(node)
        return found[0] if len(found) == 1 else None

    def passed(self, closure: Closure) -> Closure:
        """``closure`` with its value as changed by passing through a variable or a ternary."""
        if self.minor >= NEWER:
            return closure

        def read(frame: Frame) -> Value:
            value = closure(frame)
            return rewrapped(value) if type(value) is Optional and value is not NONE else value

        return read


Rules = Mapping[type[SyntaxNode], Callable[[Compiler, Any, Scope], Closure]]
"""The function that makes the closure, by kind of node."""
