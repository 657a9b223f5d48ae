"""Calls of functions, by name and, if the types determine it, by overload."""

from typing import Final

from dray.cel.check.constants import is_constant
from dray.cel.errors import CelEvaluationError, CelUnsupportedError
from dray.cel.eval import calls
from dray.cel.eval.compiler import Compiler
from dray.cel.eval.frame import Closure, Frame, Scope
from dray.cel.eval.runtime_dispatch import guarded
from dray.cel.eval.version_overrides import NEWER, charge_in, function_of
from dray.cel.library.functions import FUNCTIONS
from dray.cel.library.lists import total_from
from dray.cel.library.times import Duration
from dray.cel.library.values import BROKEN, NONE, Optional, Uint, Value, no_overload
from dray.cel.limits import StoppedError
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr

_PATTERNS: Final = ("matches", "find", "findAll")
_ONE_AT_A_TIME: Final = frozenset(
    ("indexOf", "lastIndexOf", "isGreaterThan", "isLessThan", "compareTo", "add", "sub",
     "containsIP", "containsCIDR", "semver", "isSemver", "join", "replace", "split", "substring",
     "findAll", "flatten", "getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate",
     "getDayOfWeek", "getHours", "getMinutes", "getSeconds", "getMilliseconds")
)  # fmt: skip
"""Functions of several forms. If the form is not known, upstream's dispatch evaluates one argument
after the other and stops at the first that fails."""
_SUMS: Final[dict[str, Value]] = {
    "list_double_sum_double": 0.0,
    "list_uint_sum_uint": Uint(0),
    "list_duration_sum_duration": Duration(0),
}


def call(compiler: Compiler, node: tree.Call, scope: Scope) -> Closure:
    """A function or method, or ``or`` and ``orValue``."""
    name, target = _function(node)
    given = [compiler.closure(argument, scope) for argument in node.arguments]
    if target is not None:
        if name in ("or", "orValue"):
            strict = compiler.minor >= NEWER
            return _or(name, compiler.closure(target, scope), given[0], strict=strict)
        given.insert(0, compiler.closure(target, scope))
    overload = compiler.overload(node)
    function = function_of(name, compiler.minor)
    if function is None:
        place = node.place
        raise CelUnsupportedError(name, place.text, place.line, place.column)
    if overload in _SUMS:
        function = total_from(_SUMS[overload])
    if overload is not None:
        function = guarded(name, overload, function)
    charge = charge_in(name, overload, compiler.minor)
    in_turn = name == "format" or (overload is None and name in _ONE_AT_A_TIME)
    in_turn = in_turn or (name in _PATTERNS and _has_constant_pattern(node, scope))
    found = calls.call_closure(name, function, given, charge, in_turn=in_turn)
    return _precomputed(node, target, found, scope)


def _has_constant_pattern(node: tree.Call, scope: Scope) -> bool:
    at = 0 if node.target is not None else 1
    return len(node.arguments) > at and is_constant(node.arguments[at], scope.names)


def _precomputed(node: tree.Call, target: Expr | None, found: Closure, scope: Scope) -> Closure:
    """A call whose arguments are constants is computed once. Its cost is counted each time."""
    given = node.arguments if target is None else (target, *node.arguments)
    if not given or not all(is_constant(argument, scope.names) for argument in given):
        return found
    trial = Frame.without_device()
    try:
        value = found(trial)
    except (CelEvaluationError, StoppedError):
        return found
    if trial.work > 1000:
        return found
    cost = trial.cost

    def call(frame: Frame) -> Value:
        frame.cost += cost
        return value

    return call


def _function(node: tree.Call) -> tuple[str, Expr | None]:
    """The function's name, and its target unless that is a namespace such as ``optional``."""
    name, target = node.function.removeprefix("."), node.target
    if isinstance(target, tree.Ident):
        full = f"{target.name.removeprefix('.')}.{name}"
        if full in FUNCTIONS:
            return full, None
    return name, target


def _or(name: str, target: Closure, other: Closure, *, strict: bool) -> Closure:
    """``or`` and ``orValue``. Unless ``strict``, a value that is not an optional passes through."""

    def first_value(frame: Frame) -> Value:
        optional = target(frame)
        if optional is NONE:
            return other(frame)
        if type(optional) is not Optional and strict:
            raise no_overload(name, optional)
        if name == "or" or type(optional) is not Optional:
            return optional
        if optional.value is BROKEN:
            raise CelEvaluationError("unsupported conversion to ref.Val")
        return optional.value

    return first_value
