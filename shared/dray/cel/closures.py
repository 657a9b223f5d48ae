"""Tree to Python closures: each node becomes a function of a frame.

The static check comes first; here only what it can't know is left, and that fails at run time
as in cel-go: wrong dynamic types, absent keys, overflow.
"""

from dray.cel import access, tree
from dray.cel.errors import CelEvaluationError
from dray.cel.frame import Closure, Frame, Scope
from dray.cel.functions import FUNCTIONS
from dray.cel.loops import MACROS, Loop
from dray.cel.operators import BINARY, UNARY
from dray.cel.signatures import overloads
from dray.cel.tree import Expr
from dray.cel.types import TYPE_NAMES
from dray.cel.values import NONE, Optional, TypeValue, Uint, Value, as_key, no_overload
from dray.cel.work import GROWING, length, steps_of


def closure(node: Expr, scope: Scope) -> Closure:
    """The function that evaluates ``node``, in which ``scope`` are the local variables."""
    match node:
        case tree.Literal():
            value = Uint(node.value) if node.kind == "uint" else node.value  # type: ignore[arg-type]
            return lambda frame: value
        case tree.Ident():
            return _ident(node, scope)
        case tree.Select():
            return _select(node, scope)
        case tree.Has():
            return access.has(closure(node.operand, scope), node.field)
        case tree.Index():
            return _index(node, scope)
        case tree.Unary():
            return _unary(node, scope)
        case tree.Binary():
            return _binary(node, scope)
        case tree.Logical():
            return _logical(node, scope)
        case tree.Conditional():
            return _conditional(node, scope)
        case tree.Call():
            return _call(node, scope)
        case tree.ListLiteral():
            return _list(node, scope)
        case tree.MapLiteral():
            return _map(node, scope)
        case tree.Bind():
            return _bind(node, scope)
        case tree.Macro():
            return _macro(node, scope)
        case tree.Message():
            raise TypeError("a message literal does not pass the check")


def _ident(node: tree.Ident, scope: Scope) -> Closure:
    name = node.name.removeprefix(".")
    if name in scope:
        slot = scope.slot(name)
        return lambda frame: _forced(frame, slot)
    if name == "device":
        return lambda frame: frame.device
    shown = TypeValue(TYPE_NAMES[name].parameters[0].name.replace("null", "null_type"))
    return lambda frame: shown


def _is_device(node: Expr, scope: Scope) -> bool:
    return (
        isinstance(node, tree.Ident)
        and node.name.removeprefix(".") == "device"
        and "device" not in scope
    )


def _select(node: tree.Select, scope: Scope) -> Closure:
    if _is_device(node.operand, scope) and not node.optional:
        return access.DEVICE_FIELDS[node.field]
    operand = closure(node.operand, scope)
    if node.optional:
        return access.optional_field(operand, node.field)
    return access.field(operand, node.field)


def _index(node: tree.Index, scope: Scope) -> Closure:
    operand = closure(node.operand, scope)
    if node.optional:
        return access.optional_item(operand, closure(node.key, scope))
    if isinstance(node.key, tree.Literal) and isinstance(node.key.value, str):
        return access.field(operand, node.key.value)
    return access.item(operand, closure(node.key, scope))


def _unary(node: tree.Unary, scope: Scope) -> Closure:
    operand = closure(node.operand, scope)
    change = UNARY[node.operator]
    return lambda frame: change(operand(frame))


def _binary(node: tree.Binary, scope: Scope) -> Closure:
    left, right = closure(node.left, scope), closure(node.right, scope)
    operator = BINARY[node.operator]
    if node.operator == "in" and node.right == tree.ListLiteral(()):
        return lambda frame: False  # upstream decides this without looking at the left side
    if node.operator not in ("+", "in"):
        return lambda frame: operator(left(frame), right(frame))

    def measured(frame: Frame) -> Value:
        first, second = left(frame), right(frame)
        frame.spend((length(first) + length(second)) // 10)
        return operator(first, second)

    return measured


def _logical(node: tree.Logical, scope: Scope) -> Closure:
    """A chain that a deciding term settles, whatever fails before or after it."""
    terms = tuple(closure(term, scope) for term in node.terms)
    deciding = node.operator == "||"

    def chain(frame: Frame) -> bool:
        failure: CelEvaluationError | None = None
        for term in terms:
            try:
                value = term(frame)
            except CelEvaluationError as error:
                if frame.steps_left < 0:
                    raise
                failure = failure or error
                continue
            if value is deciding:
                return bool(value)
            if type(value) is not bool:
                failure = failure or no_overload(f"_{node.operator}_", value)
        if failure is not None:
            raise failure
        return not deciding

    return chain


def _conditional(node: tree.Conditional, scope: Scope) -> Closure:
    condition = closure(node.condition, scope)
    then, otherwise = closure(node.then, scope), closure(node.otherwise, scope)

    def choose(frame: Frame) -> Value:
        value = condition(frame)
        if type(value) is not bool:
            raise no_overload("_?_:_", value)
        return then(frame) if value else otherwise(frame)

    return choose


def _call(node: tree.Call, scope: Scope) -> Closure:
    arguments = [closure(argument, scope) for argument in node.arguments]
    name = node.function.removeprefix(".")
    if node.target is not None:
        qualified = _qualified(node, scope)
        if qualified is None and name in ("or", "orValue"):
            return _or(name, closure(node.target, scope), arguments[0])
        if qualified is None:
            arguments.insert(0, closure(node.target, scope))
        name = qualified or name
    function = FUNCTIONS[name]
    if name in GROWING:
        return _measured(name, arguments)
    if len(arguments) == 1:
        only = arguments[0]
        return lambda frame: function(only(frame))
    if len(arguments) == 2:
        first, second = arguments
        return lambda frame: function(first(frame), second(frame))
    return lambda frame: function(*[argument(frame) for argument in arguments])


def _qualified(node: tree.Call, scope: Scope) -> str | None:
    if not isinstance(node.target, tree.Ident) or node.target.name in scope:
        return None
    name = f"{node.target.name.removeprefix('.')}.{node.function}"
    return name if overloads(name) else None


def _measured(name: str, arguments: list[Closure]) -> Closure:
    """A function whose work grows with its arguments."""

    function = FUNCTIONS[name]

    def call(frame: Frame) -> Value:
        values = [argument(frame) for argument in arguments]
        frame.spend(steps_of(name, values))
        return function(*values)

    return call


def _or(name: str, target: Closure, other: Closure) -> Closure:
    def first_value(frame: Frame) -> Value:
        optional = target(frame)
        if type(optional) is not Optional:
            raise no_overload(name, optional)
        if optional is NONE:
            return other(frame)
        return optional if name == "or" else optional.value

    return first_value


def _list(node: tree.ListLiteral, scope: Scope) -> Closure:
    items = [(closure(item.value, scope), item.optional) for item in node.items]

    def build(frame: Frame) -> list[Value]:
        found = []
        for item, is_optional in items:
            value = item(frame)
            if not is_optional:
                found.append(value)
            elif value is not NONE:
                found.append(value.value)
        return found

    return build


def _map(node: tree.MapLiteral, scope: Scope) -> Closure:
    entries = [
        (closure(entry.key, scope), closure(entry.value, scope), entry.optional)
        for entry in node.entries
    ]

    def build(frame: Frame) -> dict[Value, Value]:
        found: dict[Value, Value] = {}
        for key, value, is_optional in entries:
            name, item = as_key(key(frame)), value(frame)
            if not is_optional:
                found[name] = item
            elif item is not NONE:
                found[name] = item.value
        return found

    return build


class _Later:
    """The value of ``cel.bind``, computed when it is first read, as upstream does."""

    def __init__(self, value: Closure) -> None:
        self.value = value


def _forced(frame: Frame, slot: int) -> Value:
    value = frame.locals[slot]
    if isinstance(value, _Later):
        value = frame.locals[slot] = value.value(frame)
    return value


def _bind(node: tree.Bind, scope: Scope) -> Closure:
    later = _Later(closure(node.value, scope))
    inner, (slot,) = scope.extended(node.variable)
    body = closure(node.body, inner)

    def bind(frame: Frame) -> Value:
        frame.locals[slot] = later
        return body(frame)

    return bind


def _macro(node: tree.Macro, scope: Scope) -> Closure:
    inner, slots = scope.extended(*node.variables)
    arguments = tuple(closure(argument, inner) for argument in node.arguments)
    weight = 1 + sum(map(_nodes, node.arguments))
    return MACROS[node.name](Loop(closure(node.operand, scope), slots, arguments, weight))


def _nodes(node: Expr) -> int:
    return 1 + sum(map(_nodes, tree.children(node)))
