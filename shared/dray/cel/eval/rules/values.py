"""Literals of lists, maps and messages, ``cel.bind``, and the macros."""

from typing import Final

from dray.cel.check.constants import is_constant
from dray.cel.errors import CelEvaluationError
from dray.cel.eval import calls
from dray.cel.eval.compiler import Compiler
from dray.cel.eval.frame import Closure, Frame, LazyValue, Scope
from dray.cel.eval.loops import MACROS, Loop
from dray.cel.eval.runtime_cost import LIST_COST, MAP_COST, STRUCT_COST
from dray.cel.eval.structs import built
from dray.cel.eval.version_overrides import NEWER
from dray.cel.library.values import NONE, Optional, Value, as_key
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr

_ROUND: Final = 3
_STEPS: Final[dict[type, int]] = {
    tree.Literal: 0, tree.Binary: 4, tree.Unary: 3, tree.Call: 16, tree.Macro: 12, tree.Has: 4,
    tree.ListLiteral: 8, tree.MapLiteral: 12, tree.MessageLiteral: 12, tree.Index: 2,
    tree.Select: 2,
}  # fmt: skip
"""Steps for one evaluation of a node. Other nodes take 1."""


def list_literal(compiler: Compiler, node: tree.ListLiteral, scope: Scope) -> Closure:
    """``[a, ?b]``."""
    items = [(compiler.closure(item.value, scope), item.optional) for item in node.items]

    def build(frame: Frame) -> list[Value]:
        found = []
        for item, is_optional in items:
            value = item(frame)
            if not is_optional:
                found.append(value)
            elif type(value) is not Optional:
                raise CelEvaluationError("cannot initialize optional list element")
            elif value is not NONE:
                found.append(value.value)
        return found

    return calls.costing(build, LIST_COST)


def map_literal(compiler: Compiler, node: tree.MapLiteral, scope: Scope) -> Closure:
    """``{key: value, ?other: optional}``."""
    entries = [
        (compiler.closure(entry.key, scope), compiler.closure(entry.value, scope), entry.optional)
        for entry in node.entries
    ]

    def build(frame: Frame) -> dict[Value, Value]:
        found: dict[Value, Value] = {}
        for key, value, is_optional in entries:
            name, item = key(frame), value(frame)
            if not is_optional:
                found[as_key(name)] = item
            elif type(item) is not Optional:
                raise CelEvaluationError("cannot initialize optional entry")
            elif item is NONE:
                found.pop(as_key(name), None)
            else:
                found[as_key(name)] = item.value
        return found

    return calls.costing(build, MAP_COST)


def message(compiler: Compiler, node: tree.MessageLiteral, scope: Scope) -> Closure:
    """``google.protobuf.Int64Value{value: 1}`` and similar messages."""
    name = node.name.removeprefix(".")
    fields = [(part.name, compiler.closure(part.value, scope), part.optional)
              for part in node.fields]  # fmt: skip

    def build(frame: Frame) -> Value:
        found: dict[str, Value] = {}
        for field, closure, is_optional in fields:
            value = closure(frame)
            if not is_optional:
                found[field] = value
            elif type(value) is not Optional:
                raise CelEvaluationError("cannot initialize optional entry")
            elif value is not NONE:
                found[field] = value.value
        return built(name, found)

    return calls.costing(build, STRUCT_COST)


def bind(compiler: Compiler, node: tree.Bind, scope: Scope) -> Closure:
    """``cel.bind(name, value, body)``: the value is computed when it is first read."""
    later = LazyValue(compiler.closure(node.value, scope))
    inner, (slot,) = scope.extended(node.variable, lazy=True)
    body = compiler.closure(node.body, inner)

    def bind(frame: Frame) -> Value:
        frame.locals[slot] = later
        return body(frame)

    return bind


def macro(compiler: Compiler, node: tree.Macro, scope: Scope) -> Closure:
    """Loops, ``optMap`` and similar macros."""
    lazy = node.name in ("optMap", "optFlatMap")
    inner, slots = scope.extended(*node.variables, lazy=lazy)
    arguments = tuple([compiler.closure(argument, inner) for argument in node.arguments])
    loop = Loop(
        node.name,
        compiler.closure(node.operand, scope),
        slots,
        arguments,
        _ROUND + sum(map(_steps_of, node.arguments)),
        is_constant(node.arguments[-1], inner.names),
        _sorting(compiler, node) if node.name == "sortBy" else None,
        compiler.minor < NEWER,
    )
    return MACROS[node.name](loop)


def _sorting(compiler: Compiler, node: tree.Macro) -> str | None:
    expansion = compiler.checked.expansion_of(node)
    return compiler.overload(expansion.result)  # type: ignore[union-attr]


def _steps_of(node: Expr) -> int:
    """The steps for one evaluation of a tree. A plain node takes 1 step.

    A loop within it counts its own rounds.
    """
    found, ahead = 0, [node]
    while ahead:
        one = ahead.pop()
        found += _STEPS.get(one.__class__, 1)
        ahead.extend([one.operand] if isinstance(one, tree.Macro) else tree.children(one))
    return found
