"""Tree to Python closures: each node becomes a function of a frame.

The static check comes first; here only what it can't know is left, and that fails at run time
as in cel-go: wrong dynamic types, absent keys, overflow. Each closure adds the cost that
Kubernetes counts for its node.
"""

import operator
from collections.abc import Callable
from typing import Any, Final

from dray.cel import calls, paths, tree
from dray.cel.check import Checked
from dray.cel.costs import LIST_COST, MAP_COST, STRUCT_COST, charge_of
from dray.cel.errors import CelEvaluationError, CelTypeError, CelUnsupportedError
from dray.cel.folding import Unknown, constant
from dray.cel.frame import Closure, Frame, Scope
from dray.cel.functions import FUNCTIONS
from dray.cel.guards import guarded
from dray.cel.lists import total_from
from dray.cel.loops import MACROS, Later, Loop, forced
from dray.cel.minors import NEWER, charge_in, function_of
from dray.cel.operators import BINARY, UNARY
from dray.cel.paths import Step
from dray.cel.structs import built
from dray.cel.times import Duration
from dray.cel.tree import Expr
from dray.cel.values import (
    BROKEN,
    NONE,
    BoolKey,
    Optional,
    Uint,
    Value,
    as_key,
    no_overload,
    rewrapped,
    type_name,
)  # fmt: skip
from dray.cel.work import StoppedError

_PATTERNS: Final = ("matches", "find", "findAll")
_ONE_AT_A_TIME: Final = frozenset(
    ("indexOf", "lastIndexOf", "isGreaterThan", "isLessThan", "compareTo", "add", "sub",
     "containsIP", "containsCIDR", "semver", "isSemver", "join", "replace", "split", "substring",
     "findAll", "flatten", "getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate",
     "getDayOfWeek", "getHours", "getMinutes", "getSeconds", "getMilliseconds")
)  # fmt: skip
"""Functions of several forms; where the form is not known, upstream's dispatch evaluates one
argument after the other and stops at the first that fails."""
_SUMS: Final[dict[str, Value]] = {
    "list_double_sum_double": 0.0,
    "list_uint_sum_uint": Uint(0),
    "list_duration_sum_duration": Duration(0),
}


_GROWING_SUMS: Final = frozenset(("add_string", "add_bytes", "add_list", None))
_ON_INTEGERS: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "less_int64": operator.lt,
    "less_equals_int64": operator.le,
    "greater_int64": operator.gt,
    "greater_equals_int64": operator.ge,
}


_ROUND: Final = 3
_STEPS: Final[dict[type, int]] = {
    tree.Literal: 0, tree.Binary: 3, tree.Unary: 3, tree.Call: 16, tree.Macro: 12, tree.Has: 4,
    tree.ListLiteral: 8, tree.MapLiteral: 12, tree.Message: 12, tree.Index: 2, tree.Select: 2,
}  # fmt: skip
"""Steps of evaluating a node once; others take 1."""
_KEYS: Final = (str, int, Uint, bool, float)


class Compiler:
    """Makes the closures of one checked expression."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._minor = checked.environment.minor
        self._passed = _unchanged if self._minor >= NEWER else _passed
        self.scope = Scope()

    def closure(self, node: Expr, scope: Scope) -> Closure:
        """The function that evaluates ``node``, in which ``scope`` are the local variables."""
        try:
            value = constant(node, scope.names)
        except Unknown:
            return _RULES[node.__class__](self, node, scope)
        return lambda frame: value

    def overload(self, node: tree.Node) -> str | None:
        """The one overload that a call can dispatch to, if the types tell."""
        found = self._checked.overloads_of(node)
        return found[0] if len(found) == 1 else None

    # Variables and paths.

    def path(self, node: Expr, scope: Scope) -> Closure:
        """A variable, or fields and elements of anything."""
        return self._path(node, (), scope, is_value=True)

    def resolved(self, node: Expr, scope: Scope) -> Closure:
        """The value of ``node`` as key or branch, where a path does not cost itself."""
        is_path = isinstance(node, (tree.Ident, tree.Select, tree.Index, tree.Has))
        if is_path and not _is_constant(node, scope):
            return self._path(node, (), scope, is_value=False)
        return self.closure(node, scope)

    def _path(
        self, node: Expr, after: tuple[Step, ...], scope: Scope, *, is_value: bool
    ) -> Closure:
        if isinstance(node, tree.Has) and not after:
            return self._has(node, scope, is_branch=True)
        steps, root = self._steps(node, scope)
        steps += after
        if isinstance(root, tree.Conditional):
            return self._branches(root, steps, scope)
        if isinstance(root, tree.Ident) and not _is_constant(root, scope):
            return self._from_variable(root, steps, scope, is_value)
        found = paths.walk(self.closure(root, scope), steps)
        if not steps and not is_value and not _is_constant(root, scope):
            return self._passed(found)
        return paths.costing_one(found) if is_value and not _is_ternary(root) else found

    def _steps(self, node: Expr, scope: Scope) -> tuple[tuple[Step, ...], Expr]:
        steps: list[Step] = []
        while not _is_constant(node, scope):
            if isinstance(node, tree.Select):
                steps.append(Step(node.field, None, node.optional))
            elif isinstance(node, tree.Index):
                steps.append(self._key(node, scope))
            else:
                break
            node = node.operand
        return tuple(reversed(steps)), node

    def _key(self, node: tree.Index, scope: Scope) -> Step:
        try:
            key = constant(node.key, scope.names)
        except Unknown:
            return Step(None, self.resolved(node.key, scope), node.optional)
        if type(key) not in _KEYS:
            place = node.place
            reason = f"invalid qualifier type: {type_name(key)}"
            raise CelTypeError(reason, place.text, place.line, place.column)
        return Step(key, None, node.optional)

    def _from_variable(
        self, root: tree.Ident, steps: tuple[Step, ...], scope: Scope, is_value: bool
    ) -> Closure:
        name = root.name.removeprefix(".")
        is_global = root.name.startswith(".") and self._minor >= NEWER
        if name in scope and not is_global:
            slot = scope.slot(name)
            found = paths.walk(self._passed(_local(slot, scope.is_lazy(name))), steps)
            return paths.costing_one(found) if is_value else found
        first = steps[0] if steps else None
        if first is not None and first.is_plain and first.constant in paths.DEVICE_FIELDS:
            found = paths.of_device(first.constant, steps[1:])
            return found if is_value else _cheaper(found)
        found = paths.walk(lambda frame: frame.device.as_map, steps)
        return paths.costing_one(found) if is_value else found

    def _branches(self, node: tree.Conditional, steps: tuple[Step, ...], scope: Scope) -> Closure:
        """A ternary, whose branches are followed further one by one."""
        condition = self.closure(node.condition, scope)
        then = self._path(node.then, steps, scope, is_value=False)
        otherwise = self._path(node.otherwise, steps, scope, is_value=False)

        def choose(frame: Frame) -> Value:
            value = condition(frame)
            if value is True:
                return then(frame)
            if value is False:
                return otherwise(frame)
            raise no_overload("_?_:_", value)

        return choose

    def conditional(self, node: tree.Conditional, scope: Scope) -> Closure:
        return self._branches(node, (), scope)

    def has(self, node: tree.Has, scope: Scope) -> Closure:
        return self._has(node, scope, is_branch=False)

    def _has(self, node: tree.Has, scope: Scope, *, is_branch: bool) -> Closure:
        steps, root = self._steps(node.operand, scope)
        if isinstance(root, tree.Ident) and root.name == "device" and "device" not in scope:
            names = [step.constant for step in steps if step.is_plain]
            if len(names) == len(steps) == 2 and names[0] in ("attributes", "capacity"):
                return paths.has_of_device(names[0], names[1], node.field)
        operand = self._path(node.operand, (), scope, is_value=False)
        optional = any(step.optional for step in steps)
        found = paths.presence(operand, node.field, has_optional=optional, is_branch=is_branch)
        return paths.costing_less(found) if _is_ternary(root) and not is_branch else found

    # Operators.

    def unary(self, node: tree.Unary, scope: Scope) -> Closure:
        return calls.call_closure(
            node.operator + "_", UNARY[node.operator], [self.closure(node.operand, scope)], 1,
            in_turn=False,
        )  # fmt: skip

    def binary(self, node: tree.Binary, scope: Scope) -> Closure:
        """An operator; chains of them to the left are evaluated without recursion."""
        if node.operator in ("==", "!="):
            return self._equality(node, scope)
        overload = self.overload(node)
        if node.operator == "in":
            return self._membership(node, overload, scope)
        given = [self.closure(node.left, scope), self.closure(node.right, scope)]
        exact = _ON_INTEGERS.get(overload or "")
        if exact is not None:
            return calls.call_closure("", exact, given, 1, in_turn=False)
        name = f"_{node.operator}_"
        growing = name if overload in _GROWING_SUMS else ""
        charge = charge_of(name, overload)
        return calls.call_closure(growing, BINARY[node.operator], given, charge, in_turn=False)

    def _equality(self, node: tree.Binary, scope: Scope) -> Closure:
        left, right = self.closure(node.left, scope), self.closure(node.right, scope)
        negated = node.operator == "!="
        if isinstance(node.right, tree.Literal) and isinstance(node.right.value, str):
            return calls.equals_text(left, node.right.value, negated=negated)
        return calls.equality(left, right, negated=negated)

    def _membership(self, node: tree.Binary, overload: str | None, scope: Scope) -> Closure:
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
                    return _among(self.closure(node.left, scope), members)
        given = [self.closure(node.left, scope), self.closure(node.right, scope)]
        growing = "" if overload == "in_map" else "@in"
        charge = charge_of("@in", overload)
        return calls.call_closure(growing, BINARY["in"], given, charge, in_turn=False)

    def logical(self, node: tree.Logical, scope: Scope) -> Closure:
        """A chain that a deciding term settles, whatever fails before or after it."""
        terms = tuple([self.closure(term, scope) for term in node.terms])
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

    # Calls.

    def call(self, node: tree.Call, scope: Scope) -> Closure:
        name, target = _function(node)
        given = [self.closure(argument, scope) for argument in node.arguments]
        if target is not None:
            if name in ("or", "orValue"):
                strict = self._minor >= NEWER
                return _or(name, self.closure(target, scope), given[0], strict=strict)
            given.insert(0, self.closure(target, scope))
        overload = self.overload(node)
        function = function_of(name, self._minor)
        if function is None:
            place = node.place
            raise CelUnsupportedError(name, place.text, place.line, place.column)
        if overload in _SUMS:
            function = total_from(_SUMS[overload])
        if overload is not None:
            function = guarded(name, overload, function)
        charge = charge_in(name, overload, self._minor)
        in_turn = name == "format" or (overload is None and name in _ONE_AT_A_TIME)
        in_turn = in_turn or (name in _PATTERNS and self._has_constant_pattern(node, scope))
        found = calls.call_closure(name, function, given, charge, in_turn=in_turn)
        return self._precomputed(node, target, found, scope)

    def _has_constant_pattern(self, node: tree.Call, scope: Scope) -> bool:
        at = 0 if node.target is not None else 1
        return len(node.arguments) > at and _is_constant(node.arguments[at], scope)

    def _precomputed(
        self, node: tree.Call, target: Expr | None, found: Closure, scope: Scope
    ) -> Closure:
        """A call of constants gives what it gives; only its cost is counted each time."""
        given = node.arguments if target is None else (target, *node.arguments)
        if not given or not all(_is_constant(argument, scope) for argument in given):
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

    # Literals.

    def list_literal(self, node: tree.ListLiteral, scope: Scope) -> Closure:
        items = [(self.closure(item.value, scope), item.optional) for item in node.items]

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

    def map_literal(self, node: tree.MapLiteral, scope: Scope) -> Closure:
        entries = [
            (self.closure(entry.key, scope), self.closure(entry.value, scope), entry.optional)
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

    def message(self, node: tree.Message, scope: Scope) -> Closure:
        name = node.name.removeprefix(".")
        fields = [(part.name, self.closure(part.value, scope), part.optional)
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

    # Macros.

    def bind(self, node: tree.Bind, scope: Scope) -> Closure:
        later = Later(self.closure(node.value, scope))
        inner, (slot,) = scope.extended(node.variable, lazy=True)
        body = self.closure(node.body, inner)

        def bind(frame: Frame) -> Value:
            frame.locals[slot] = later
            return body(frame)

        return bind

    def macro(self, node: tree.Macro, scope: Scope) -> Closure:
        lazy = node.name in ("optMap", "optFlatMap")
        inner, slots = scope.extended(*node.variables, lazy=lazy)
        arguments = tuple([self.closure(argument, inner) for argument in node.arguments])
        loop = Loop(
            node.name,
            self.closure(node.operand, scope),
            slots,
            arguments,
            _ROUND + sum(map(_steps_of, node.arguments)),
            _is_constant(node.arguments[-1], inner),
            self._sorting(node) if node.name == "sortBy" else None,
            self._minor < NEWER,
        )
        return MACROS[node.name](loop)

    def _sorting(self, node: tree.Macro) -> str | None:
        expansion = self._checked.expansion_of(node)
        return self.overload(expansion.result)  # type: ignore[union-attr]


def _function(node: tree.Call) -> tuple[str, Expr | None]:
    """The function's name, and its target unless that is a namespace such as ``optional``."""
    name, target = node.function.removeprefix("."), node.target
    if isinstance(target, tree.Ident):
        full = f"{target.name.removeprefix('.')}.{name}"
        if full in FUNCTIONS:
            return full, None
    return name, target


def _local(slot: int, is_lazy: bool) -> Closure:
    if is_lazy:
        return lambda frame: forced(frame, slot)
    return lambda frame: frame.locals[slot]


def _unchanged(closure: Closure) -> Closure:
    return closure


def _passed(closure: Closure) -> Closure:
    """``closure``, whose value passes through a variable or a ternary."""

    def read(frame: Frame) -> Value:
        value = closure(frame)
        return rewrapped(value) if type(value) is Optional and value is not NONE else value

    return read


def _cheaper(closure: Closure) -> Closure:
    """``closure`` without the cost of the path itself."""

    def read(frame: Frame) -> Value:
        frame.cost -= 1
        return closure(frame)

    return read


def _is_constant(node: Expr, scope: Scope) -> bool:
    try:
        constant(node, scope.names)
    except Unknown:
        return False
    return True


def _is_ternary(node: Expr) -> bool:
    """Whether it is one, or a macro that stands for one: steps then go on in its branches."""
    is_macro = isinstance(node, tree.Macro) and node.name in ("optMap", "optFlatMap")
    return is_macro or isinstance(node, tree.Conditional)


def _members(items: list[Value]) -> frozenset[Value] | None:
    """The elements of a constant list, where upstream makes a set of them."""
    kinds = (bool, str, int, Uint, float)
    if any(type(item) not in kinds for item in items):
        return None
    return frozenset(as_key(item) for item in items if item == item)


def _among(needle: Closure, members: frozenset[Value]) -> Closure:
    """``needle in`` such a set costs only the needle; what Go can't hash stops the evaluation."""
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


def _or(name: str, target: Closure, other: Closure, *, strict: bool) -> Closure:
    """``or`` and ``orValue``; unless ``strict``, what is no optional passes through them."""

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


def _steps_of(node: Expr) -> int:
    """The steps of evaluating a tree once, in units of what a plain node takes.

    A loop within it counts its own rounds.
    """
    found, ahead = 0, [node]
    while ahead:
        one = ahead.pop()
        found += _STEPS.get(one.__class__, 1)
        ahead.extend([one.operand] if isinstance(one, tree.Macro) else tree.children(one))
    return found


_RULES: Final[dict[type, Callable[[Compiler, Any, Scope], Closure]]] = {
    tree.Ident: Compiler.path,
    tree.Select: Compiler.path,
    tree.Index: Compiler.path,
    tree.Conditional: Compiler.conditional,
    tree.Has: Compiler.has,
    tree.Unary: Compiler.unary,
    tree.Binary: Compiler.binary,
    tree.Logical: Compiler.logical,
    tree.Call: Compiler.call,
    tree.ListLiteral: Compiler.list_literal,
    tree.MapLiteral: Compiler.map_literal,
    tree.Message: Compiler.message,
    tree.Bind: Compiler.bind,
    tree.Macro: Compiler.macro,
}
