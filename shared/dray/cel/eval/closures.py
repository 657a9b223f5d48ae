"""Tree to Python closures: each node becomes a function of a frame.

The static check comes first. The errors that it can't find are raised at run time, as in cel-go:
wrong dynamic types, absent keys, overflow. Each closure adds the cost that Kubernetes counts for
its node.
"""

from typing import Final

from dray.cel.check.check_result import CheckedExpr
from dray.cel.eval.compiler import Compiler, Rules
from dray.cel.eval.rules import calls, operators, paths, values
from dray.cel.syntax import tree


def compiler_of(checked: CheckedExpr) -> Compiler:
    """The compiler of one checked expression."""
    return Compiler(checked, _RULES)


_RULES: Final[Rules] = {
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
    tree.MessageLiteral: values.message,
    tree.Bind: values.bind,
    tree.Macro: values.macro,
}
