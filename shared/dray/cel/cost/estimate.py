"""The static worst-case cost of an expression: the number by which Kubernetes admits it.

Kubernetes compares cel-go's estimate with its limit, so this counts as cel-go counts, even where
that looks odd: sizes wrap around as in Go, and paths share memory as Go's slices do.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dray.cel.check.check_result import CheckedExpr
from dray.cel.check.expansion import Core, Fold, Repeat
from dray.cel.cost.call import UNIT, Estimate, EstimatedCall, Sized
from dray.cel.cost.extensions import BY_EXTENSION
from dray.cel.cost.kubernetes import BY_FUNCTION
from dray.cel.cost.sizes import (
    NOTHING_YET,
    ONE,
    UNKNOWN,
    ZERO,
    Entries,
    Path,
    SizeRange,
    declared_size,
    fixed,
    written_size,
)
from dray.cel.cost.standard import BY_OVERLOAD
from dray.cel.syntax import tree
from dray.cel.syntax.tree import SyntaxNode
from dray.cel.types.types import Type

_LIST_COST: Final = fixed(10)
_MAP_COST: Final = fixed(30)
_MESSAGE_COST: Final = fixed(40)
_CONTAINERS: Final = (tree.ListLiteral, tree.MapLiteral)


class _Local(NamedTuple):
    path: Path
    size: SizeRange | None
    entries: Entries | None


def estimate(checked: CheckedExpr) -> int:
    """The estimated worst-case cost in CEL's units, at most 2**64 - 1."""
    return _Estimator(checked).cost(checked.root).high


class _Estimator:
    """One walk over one expression. It remembers what it learned about each node."""

    def __init__(self, checked: CheckedExpr) -> None:
        self._checked = checked
        self._is_newest = checked.environment.minor >= 37
        self._costs: dict[int, SizeRange] = {}
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, SizeRange] = {}
        self._entries: dict[int, Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Core) -> SizeRange:
        if isinstance(node, Repeat):
            return self._costs[id(node.node)]
        if isinstance(node, tree.Macro | tree.Bind):
            core = self._checked.expansion_of(node)
            found = self.cost(core)
            self._copy(core, node)
        else:
            found = _RULES[node.__class__](self, node)
        self._costs[id(node)] = found
        return found

    # What is known about a node.

    def _type(self, node: SyntaxNode) -> Type:
        return self._checked.type_of(_meant(node))

    def _local(self, node: SyntaxNode) -> _Local | None:
        if isinstance(node, tree.Ident):
            known = self._locals.get(node.name.removeprefix("."))
            return known[-1] if known else None
        return None

    def _path(self, node: SyntaxNode) -> Path:
        local = self._local(node)
        return local.path if local else self._paths.get(id(_meant(node))) or Path([], 0, 0)

    def _size(self, node: SyntaxNode) -> SizeRange | None:
        node = _meant(node)
        known = self._sizes.get(id(node)) or written_size(node)
        if known is not None:
            return known
        declared = declared_size(self._path(node).steps)
        if declared is not None:
            self._sizes[id(node)] = declared
            return declared
        if self._type(node).is_scalar:
            return ONE
        local = self._local(node)
        return local.size if local else None

    def _size_or_unknown(self, node: SyntaxNode) -> SizeRange:
        return self._size(node) or UNKNOWN

    def _entries_of(self, node: SyntaxNode) -> Entries | None:
        node = _meant(node)
        known = self._entries.get(id(node))
        if known is not None:
            return known
        local = self._local(node)
        return local.entries if local else None

    def _note(
        self, node: SyntaxNode, size: SizeRange | None, entries: Entries | None = None
    ) -> None:
        if size is not None:
            self._sizes[id(node)] = size
        if entries is not None:
            self._entries[id(node)] = entries

    def _copy(self, source: SyntaxNode, target: SyntaxNode) -> None:
        self._note(target, self._size(source), self._entries_of(source))

    def sized(self, node: SyntaxNode) -> Sized:
        """The properties of an operand on which the cost of its call depends."""
        path = self._path(node)
        return Sized(_meant(node), self._type(node), self._size(node), lambda: path.steps)

    # Rules.

    def literal(self, node: tree.Literal) -> SizeRange:
        return ZERO

    def ident(self, node: tree.Ident) -> SizeRange:
        local = self._local(node)
        self._paths[id(node)] = local.path if local else Path([node.name.removeprefix(".")], 1, 1)
        return ONE

    def select(self, node: tree.Select) -> SizeRange:
        if node.optional:
            field = tree.Literal("string", node.field, place=node.place)
            return self._call(node, "_?._", (node.operand, field))
        if not self._checked.is_visited(node.operand):
            return ONE  # the name of a type, such as google.protobuf.Duration
        found = self.cost(node.operand)
        if self._type(node.operand).kind in ("map", "struct"):
            found = found.plus(ONE)
        self._paths[id(node)] = self._path(node.operand).to(node.field)
        return found

    def has(self, node: tree.Has) -> SizeRange:
        return self.cost(node.operand)

    def index(self, node: tree.Index) -> SizeRange:
        return self._call(node, "_[?_]" if node.optional else "_[_]", (node.operand, node.key))

    def unary(self, node: tree.Unary) -> SizeRange:
        return self._call(node, node.operator + "_", (node.operand,))

    def binary(self, node: tree.Binary) -> SizeRange:
        name = "@in" if node.operator == "in" else f"_{node.operator}_"
        return self._call(node, name, (node.left, node.right))

    def logical(self, node: tree.Logical) -> SizeRange:
        costs = [self.cost(term) for term in node.terms]
        return SizeRange(costs[0].low, min(sum(cost.high for cost in costs), UNKNOWN.high))

    def conditional(self, node: tree.Conditional) -> SizeRange:
        condition, then = self.cost(node.condition), self.cost(node.then)
        otherwise = self.cost(node.otherwise)
        size = self._size_or_unknown(node.then).union(self._size_or_unknown(node.otherwise))
        entries = self._entries_of(node.then)
        joined = entries.union(self._entries_of(node.otherwise)) if entries else None
        self._note(node, size, joined)
        return condition.plus(then.union(otherwise))

    def call(self, node: tree.Call) -> SizeRange:
        name = node.function.removeprefix(".")
        target = node.target
        if isinstance(target, tree.Ident) and not self._checked.is_visited(target):
            return self._call(node, f"{target.name.removeprefix('.')}.{name}", node.arguments)
        if name == "dyn" and target is None:
            found = self.cost(node.arguments[0]).plus(ONE)
            self._copy(node.arguments[0], node)
            return found
        return self._call(node, name, node.arguments, target)

    def _call(
        self,
        node: SyntaxNode,
        name: str,
        arguments: tuple[SyntaxNode, ...],
        target: SyntaxNode | None = None,
    ) -> SizeRange:
        costs, operands = ZERO, list[Sized]()
        for argument in arguments:
            costs = costs.plus(self.cost(argument))  # type: ignore[arg-type]
            operands.append(self.sized(argument))
        before = ZERO
        receiver: Sized | None = None
        if target is not None:
            before = self.cost(target)  # type: ignore[arg-type]
            receiver = self.sized(target)
        found, size = NOTHING_YET, None
        for overload in self._checked.overloads_of(node):
            one = _call_cost(
                EstimatedCall(name, overload, receiver, tuple(operands), self._is_newest)
            )
            found = found.union(one.cost.plus(costs))
            if one.size is not None:
                size = one.size if size is None else size.union(one.size)
            if overload in ("index_list", "index_map"):
                size = self._indexed(node, arguments[0], overload)
            elif overload in ("add_list", "add_string", "add_bytes"):
                self._add_entries(node, arguments)
            if size is None:
                size = self._size(node)
        self._note(node, size)
        return before.plus(found)

    def _indexed(self, node: SyntaxNode, operand: SyntaxNode, overload: str) -> SizeRange | None:
        entries = self._entries_of(operand)
        step = "@items" if overload == "index_list" else "@values"
        self._paths[id(node)] = self._path(operand).to(step)
        return entries.value if entries else None

    def _add_entries(self, node: SyntaxNode, arguments: tuple[SyntaxNode, ...]) -> None:
        left, right = map(self._entries_of, arguments)
        if left is not None:
            self._note(node, None, left.union(right))

    def list_literal(self, node: tree.ListLiteral) -> SizeRange:
        cost, item = _LIST_COST, NOTHING_YET if node.items else ZERO
        for element in node.items:
            cost = cost.plus(self.cost(element.value))
            item = item.union(self._size_or_unknown(element.value))
        self._note(node, None, Entries(True, ONE, item))
        return cost

    def map_literal(self, node: tree.MapLiteral) -> SizeRange:
        cost, start = _MAP_COST, NOTHING_YET if node.entries else ZERO
        key = value = start
        for entry in node.entries:
            cost = cost.plus(self.cost(entry.key)).plus(self.cost(entry.value))
            key = key.union(self._size_or_unknown(entry.key))
            value = value.union(self._size_or_unknown(entry.value))
        self._note(node, None, Entries(False, key, value))
        return cost

    def message(self, node: tree.MessageLiteral) -> SizeRange:
        cost = _MESSAGE_COST
        for entry in node.fields:
            cost = cost.plus(self.cost(entry.value))
        return cost

    # Loops.

    def fold(self, node: Fold) -> SizeRange:
        cost = self.cost(node.range).plus(self.cost(node.start))
        local = _Local(self._path(node.start), self._size(node.start), self._entries_of(node.start))
        self._push(node.accumulator, local)
        if node.is_bind and node.accumulator != "__result__":
            cost = cost.plus(self.cost(node.result))
            self._pop(node.accumulator)
            self._copy(node.result, node)
            return cost
        self._push_variables(node)
        round_cost = self.cost(node.condition).plus(self.cost(node.step))
        for name in node.variables:
            self._pop(name)
        cost = cost.plus(self.cost(node.result))
        self._pop(node.accumulator)
        count = self._size_or_unknown(node.range)
        if isinstance(node.start, tree.Literal):
            self._note(node, self._size(node.start))
        elif isinstance(node.start, _CONTAINERS):
            self._note(node, count, self._entries_of(node.step))
        return cost.plus(count.times(round_cost))

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _pop(self, name: str) -> None:
        self._locals[name].pop()

    def _push_variables(self, node: Fold) -> None:
        entries = self._entries_of(node.range)
        is_list = entries.is_list if entries else self._type(node.range).kind == "list"
        key, value = (entries.key, entries.value) if entries else (None, None)
        path = self._path(node.range)
        keys, values = ("@indices", "@items") if is_list else ("@keys", "@values")
        if len(node.variables) == 2:
            self._push(node.variables[0], _Local(path.to(keys), key, None))
            self._push(node.variables[1], _Local(path.to(values), value, None))
            return
        step, size = ("@items", value) if is_list else ("@keys", key)
        self._push(node.variables[0], _Local(path.to(step), size, None))


_RULES: Final[dict[type, Callable[[_Estimator, Any], SizeRange]]] = {
    tree.Literal: _Estimator.literal,
    tree.Ident: _Estimator.ident,
    tree.Select: _Estimator.select,
    tree.Has: _Estimator.has,
    tree.Index: _Estimator.index,
    tree.Unary: _Estimator.unary,
    tree.Binary: _Estimator.binary,
    tree.Logical: _Estimator.logical,
    tree.Conditional: _Estimator.conditional,
    tree.Call: _Estimator.call,
    tree.ListLiteral: _Estimator.list_literal,
    tree.MapLiteral: _Estimator.map_literal,
    tree.MessageLiteral: _Estimator.message,
    Fold: _Estimator.fold,
}


def _meant(node: SyntaxNode) -> SyntaxNode:
    return node.node if isinstance(node, Repeat) else node


def _call_cost(call: EstimatedCall) -> Estimate:
    """The cost by the rules of Kubernetes, else of cel-go's libraries, else of cel-go itself. The
    cost of the operands is not included."""
    for rules, key in (
        (BY_EXTENSION, call.overload),
        (BY_FUNCTION, call.function),
        (BY_OVERLOAD, call.overload),
    ):
        rule = rules.get(key)
        found = rule(call) if rule else None
        if found is not None:
            return found
    return UNIT
