"""Variables, fields, elements, ternaries and ``has``: all nodes that read along a path."""

from typing import Final

from dray.cel.check.constants import Unknown, constant, is_constant
from dray.cel.errors import CelTypeError
from dray.cel.eval import paths
from dray.cel.eval.compiler import Compiler
from dray.cel.eval.frame import Closure, Frame, Scope, forced
from dray.cel.eval.paths import PathStep
from dray.cel.eval.version_overrides import NEWER
from dray.cel.library.values import Uint, Value, no_overload, type_name
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr

_KEYS: Final = (str, int, Uint, bool, float)


def path(compiler: Compiler, node: Expr, scope: Scope) -> Closure:
    """A variable, or fields and elements of any value."""
    return _path(compiler, node, (), scope, is_value=True)


def _resolved(compiler: Compiler, node: Expr, scope: Scope) -> Closure:
    """The value of ``node`` as a key or branch, without the cost of the path itself."""
    is_path = isinstance(node, (tree.Ident, tree.Select, tree.Index, tree.Has))
    if is_path and not is_constant(node, scope.names):
        return _path(compiler, node, (), scope, is_value=False)
    return compiler.closure(node, scope)


def _path(
    compiler: Compiler, node: Expr, after: tuple[PathStep, ...], scope: Scope, *, is_value: bool
) -> Closure:
    if isinstance(node, tree.Has) and not after:
        return _has(compiler, node, scope, is_branch=True)
    steps, root = _steps(compiler, node, scope)
    steps += after
    if isinstance(root, tree.Conditional):
        return _branches(compiler, root, steps, scope)
    if isinstance(root, tree.Ident) and not is_constant(root, scope.names):
        return _from_variable(compiler, root, steps, scope, is_value)
    found = paths.walk(compiler.closure(root, scope), steps)
    if not steps and not is_value and not is_constant(root, scope.names):
        return compiler.passed(found)
    return paths.costing_one(found) if is_value and not _is_ternary(root) else found


def _steps(compiler: Compiler, node: Expr, scope: Scope) -> tuple[tuple[PathStep, ...], Expr]:
    steps: list[PathStep] = []
    while not is_constant(node, scope.names):
        if isinstance(node, tree.Select):
            steps.append(PathStep(node.field, None, node.optional))
        elif isinstance(node, tree.Index):
            steps.append(_key(compiler, node, scope))
        else:
            break
        node = node.operand
    return tuple(reversed(steps)), node


def _key(compiler: Compiler, node: tree.Index, scope: Scope) -> PathStep:
    try:
        key = constant(node.key, scope.names)
    except Unknown:
        return PathStep(None, _resolved(compiler, node.key, scope), node.optional)
    if type(key) not in _KEYS:
        place = node.place
        reason = f"invalid qualifier type: {type_name(key)}"
        raise CelTypeError(reason, place.text, place.line, place.column)
    return PathStep(key, None, node.optional)


def _from_variable(
    compiler: Compiler, root: tree.Ident, steps: tuple[PathStep, ...], scope: Scope, is_value: bool
) -> Closure:
    name = root.name.removeprefix(".")
    is_global = root.name.startswith(".") and compiler.minor >= NEWER
    if name in scope and not is_global:
        slot = scope.slot(name)
        found = paths.walk(compiler.passed(_local(slot, scope.is_lazy(name))), steps)
        return paths.costing_one(found) if is_value else found
    first = steps[0] if steps else None
    if first is not None and first.is_plain and first.constant in paths.DEVICE_FIELDS:
        found = paths.of_device(first.constant, steps[1:])
        return found if is_value else _cheaper(found)
    found = paths.walk(lambda frame: frame.device.as_map, steps)
    return paths.costing_one(found) if is_value else found


def _branches(
    compiler: Compiler, node: tree.Conditional, steps: tuple[PathStep, ...], scope: Scope
) -> Closure:
    """A ternary. The remaining steps are applied to each of its branches."""
    condition = compiler.closure(node.condition, scope)
    then = _path(compiler, node.then, steps, scope, is_value=False)
    otherwise = _path(compiler, node.otherwise, steps, scope, is_value=False)

    def choose(frame: Frame) -> Value:
        value = condition(frame)
        if value is True:
            return then(frame)
        if value is False:
            return otherwise(frame)
        raise no_overload("_?_:_", value)

    return choose


def conditional(compiler: Compiler, node: tree.Conditional, scope: Scope) -> Closure:
    """``condition ? then : otherwise``."""
    return _branches(compiler, node, (), scope)


def has(compiler: Compiler, node: tree.Has, scope: Scope) -> Closure:
    """``has(operand.field)``."""
    return _has(compiler, node, scope, is_branch=False)


def _has(compiler: Compiler, node: tree.Has, scope: Scope, *, is_branch: bool) -> Closure:
    steps, root = _steps(compiler, node.operand, scope)
    if isinstance(root, tree.Ident) and root.name == "device" and "device" not in scope:
        names = [step.constant for step in steps if step.is_plain]
        if len(names) == len(steps) == 2 and names[0] in ("attributes", "capacity"):
            return paths.has_of_device(names[0], names[1], node.field)
    operand = _path(compiler, node.operand, (), scope, is_value=False)
    optional = any(step.optional for step in steps)
    found = paths.presence(operand, node.field, has_optional=optional, is_branch=is_branch)
    return paths.costing_less(found) if _is_ternary(root) and not is_branch else found


def _local(slot: int, is_lazy: bool) -> Closure:
    if is_lazy:
        return lambda frame: forced(frame, slot)
    return lambda frame: frame.locals[slot]


def _cheaper(closure: Closure) -> Closure:
    """``closure`` without the cost of the path itself."""

    def read(frame: Frame) -> Value:
        frame.cost -= 1
        return closure(frame)

    return read


def _is_ternary(node: Expr) -> bool:
    """Whether it is a ternary, or a macro that expands to one: steps then continue in its
    branches."""
    is_macro = isinstance(node, tree.Macro) and node.name in ("optMap", "optFlatMap")
    return is_macro or isinstance(node, tree.Conditional)
