"""Operators: arithmetic, comparisons, membership, and the logical ones that absorb errors."""

import operator
from collections.abc import Callable
from typing import Final

from dray.cel.check.constants import Unknown, constant
from dray.cel.errors import CelEvaluationError
from dray.cel.eval import calls
from dray.cel.eval.compiler import Compiler
from dray.cel.eval.frame import Closure, Frame, Scope
from dray.cel.eval.runtime_cost import charge_of
from dray.cel.library.operators import BINARY, UNARY, signed
from dray.cel.library.values import BoolKey, Uint, Value, as_key, no_overload
from dray.cel.limits import StoppedError
from dray.cel.syntax import tree

_GROWING_SUMS: Final = frozenset(("add_string", "add_bytes", "add_list", None))
_ON_INTEGERS: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "add_int64": lambda left, right: signed(left + right),
    "subtract_int64": lambda left, right: signed(left - right),
    "multiply_int64": lambda left, right: signed(left * right),
    "less_int64": operator.lt,
    "less_equals_int64": operator.le,
    "greater_int64": operator.gt,
    "greater_equals_int64": operator.ge,
}


def unary(compiler: Compiler, node: tree.Unary, scope: Scope) -> Closure:
    """``!x`` and ``-x``."""
    return calls.call_closure(
        node.operator + "_", UNARY[node.operator], [compiler.closure(node.operand, scope)], 1,
        in_turn=False,
    )  # fmt: skip


def binary(compiler: Compiler, node: tree.Binary, scope: Scope) -> Closure:
    """An operator. Chains of operators on the left are evaluated without recursion."""
    if node.operator in ("==", "!="):
        return _equality(compiler, node, scope)
    overload = compiler.overload(node)
    if node.operator == "in":
        return _membership(compiler, node, overload, scope)
    given = [compiler.closure(node.left, scope), compiler.closure(node.right, scope)]
    exact = _ON_INTEGERS.get(overload or "")
    if exact is not None:
        chosen = _for_integers(exact, BINARY[node.operator])
        return calls.call_closure("", chosen, given, 1, in_turn=False)
    name = f"_{node.operator}_"
    growing = name if overload in _GROWING_SUMS else ""
    charge = charge_of(name, overload)
    return calls.call_closure(growing, BINARY[node.operator], given, charge, in_turn=False)


def _for_integers(
    exact: Callable[[Value, Value], Value], otherwise: Callable[[Value, Value], Value]
) -> Callable[[Value, Value], Value]:
    """``exact`` if both are integers, as the types say. A dynamic list can hold other values."""

    def apply(left: Value, right: Value) -> Value:
        if type(left) is int and type(right) is int:
            return exact(left, right)
        return otherwise(left, right)

    return apply


def _equality(compiler: Compiler, node: tree.Binary, scope: Scope) -> Closure:
    left, right = compiler.closure(node.left, scope), compiler.closure(node.right, scope)
    negated = node.operator == "!="
    if isinstance(node.right, tree.Literal) and isinstance(node.right.value, str):
        return calls.equals_text(left, node.right.value, negated=negated)
    return calls.equality(left, right, negated=negated)


def _membership(
    compiler: Compiler, node: tree.Binary, overload: str | None, scope: Scope
) -> Closure:
    if overload == "in_list":
        try:
            items = constant(node.right, scope.names)
        except Unknown:
            pass
        else:
            if not items:
                return lambda frame: False
            members = _members(items)
            if members is not None:
                return _among(compiler.closure(node.left, scope), members)
    given = [compiler.closure(node.left, scope), compiler.closure(node.right, scope)]
    growing = "" if overload == "in_map" else "@in"
    charge = charge_of("@in", overload)
    return calls.call_closure(growing, BINARY["in"], given, charge, in_turn=False)


def logical(compiler: Compiler, node: tree.Logical, scope: Scope) -> Closure:
    """A chain. A deciding term determines its result, even if terms before or after it fail."""
    terms = tuple([compiler.closure(term, scope) for term in node.terms])
    deciding = node.operator == "||"

    def chain(frame: Frame) -> bool:
        failure: CelEvaluationError | None = None
        for term in terms:
            try:
                value = term(frame)
            except CelEvaluationError as error:
                failure = failure or error
                continue
            if value is deciding:
                return value is True
            if type(value) is not bool:
                failure = failure or no_overload(f"_{node.operator}_", value)
        if failure is not None:
            raise failure
        return not deciding

    return chain


def _members(items: list[Value]) -> frozenset[Value] | None:
    """The elements of a constant list if upstream makes a set from them, else None."""
    kinds = (bool, str, int, Uint, float)
    if any(type(item) not in kinds for item in items):
        return None
    return frozenset(as_key(item) for item in items if item == item)


def _among(needle: Closure, members: frozenset[Value]) -> Closure:
    """``needle in`` such a set costs only the needle. A value that Go can't hash stops the
    evaluation."""
    hashable = (str, int, Uint, float)

    def test(frame: Frame) -> bool:
        value = needle(frame)
        kind = type(value)
        if kind in hashable:
            return value in members
        if kind is bool:
            return BoolKey(value) in members
        if kind.__name__ in ("bytes", "Semver", "NamedFormat"):
            raise StoppedError("internal error: hash of unhashable type")
        return False

    return test
