"""Macros as cel-go expands them: the check and the cost apply to these loops and calls."""

from typing import Final

from dray.cel.source import SourceLocation
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr, SyntaxNode

_ACCUMULATOR: Final = "@result"
_UNUSED: Final = "#unused"
_SORTED: Final = "@__sortBy_input__"


class Fold(SyntaxNode, frozen=True, eq=False):
    """A loop over ``range``: begins with ``start``, and does ``step`` while ``condition`` is true.

    With an empty range and the condition false it only binds ``accumulator`` to ``start``.
    """

    range: "Core"
    variables: tuple[str, ...]
    accumulator: str
    start: "Core"
    condition: "Core"
    step: "Core"
    result: "Core"

    @property
    def is_bind(self) -> bool:
        """Whether it is ``cel.bind`` and not a loop."""
        return self.variables == (_UNUSED,)


class Repeat(SyntaxNode, frozen=True, eq=False):
    """Another use of the same expression, which is evaluated again."""

    node: Expr


Core = Expr | Fold | Repeat
"""An expression, or a loop or repetition in an expanded macro."""


def expanded(node: tree.Macro | tree.Bind) -> Core:
    """The expansion of a macro. All nodes that it adds have the position of the macro's bracket."""
    return _Expansion(node.place).of(node)


class _Expansion:
    def __init__(self, place: SourceLocation) -> None:
        self._place = place

    def of(self, node: tree.Macro | tree.Bind) -> Core:
        if isinstance(node, tree.Bind):
            return self._bind(node.variable, node.value, node.body)
        match node.name:
            case "all":
                return self._all(node)
            case "exists":
                return self._exists(node)
            case "exists_one" | "existsOne":
                return self._exists_one(node)
            case "map" | "transformList" | "filter":
                return self._list(node)
            case "transformMap" | "transformMapEntry":
                return self._map(node)
            case "sortBy":
                return self._sort_by(node)
            case _:
                return self._optional(node)

    def _accumulated(self) -> tree.Ident:
        return tree.Ident(_ACCUMULATOR, place=self._place)

    def _literal(self, value: bool | int) -> tree.Literal:
        kind = "bool" if isinstance(value, bool) else "int"
        return tree.Literal(kind, value, place=self._place)

    def _call(self, name: str, *arguments: Core, target: Core | None = None) -> Expr:
        return tree.Call(name, arguments, target, place=self._place)  # type: ignore[arg-type]

    def _listed(self, *values: Core) -> Expr:
        items = tuple(tree.ListItem(v, place=self._place) for v in values)  # type: ignore[arg-type]
        return tree.ListLiteral(items, place=self._place)

    def _fold(self, node: tree.Macro, start: Core, condition: Core, step: Core) -> Fold:
        return Fold(
            node.operand,
            node.variables,
            _ACCUMULATOR,
            start,
            condition,
            step,
            self._accumulated(),
            place=self._place,
        )

    def _all(self, node: tree.Macro) -> Core:
        going = self._call("@not_strictly_false", self._accumulated())
        step = tree.Logical("&&", (self._accumulated(), node.arguments[0]), place=self._place)
        return self._fold(node, self._literal(True), going, step)

    def _exists(self, node: tree.Macro) -> Core:
        none_yet = tree.Unary("!", self._accumulated(), place=self._place)
        going = self._call("@not_strictly_false", none_yet)
        step = tree.Logical("||", (self._accumulated(), node.arguments[0]), place=self._place)
        return self._fold(node, self._literal(False), going, step)

    def _exists_one(self, node: tree.Macro) -> Core:
        one = self._literal(1)
        more = tree.Binary("+", self._accumulated(), one, place=self._place)
        step = self._either(node.arguments[0], more)
        is_one = tree.Binary("==", self._accumulated(), self._literal(1), place=self._place)
        fold = self._fold(node, self._literal(0), self._literal(True), step)
        return tree.replace(fold, result=is_one)

    def _either(self, condition: Expr, step: Expr) -> Expr:
        return tree.Conditional(condition, step, self._accumulated(), place=self._place)

    def _list(self, node: tree.Macro) -> Core:
        *conditions, item = node.arguments
        if node.name == "filter":
            conditions, item = [item], tree.Ident(node.variables[0], place=self._place)
        step: Expr = tree.Binary("+", self._accumulated(), self._listed(item), place=self._place)
        if conditions:
            step = self._either(conditions[0], step)
        return self._fold(node, self._listed(), self._literal(True), step)

    def _map(self, node: tree.Macro) -> Core:
        *conditions, item = node.arguments
        key = tree.Ident(node.variables[0], place=self._place)
        entry = (item,) if node.name == "transformMapEntry" else (key, item)
        step = self._call("cel.@mapInsert", self._accumulated(), *entry)
        if conditions:
            step = self._either(conditions[0], step)
        start = tree.MapLiteral((), place=self._place)
        return self._fold(node, start, self._literal(True), step)

    def _bind(self, name: str, value: Core, body: Core) -> Fold:
        return Fold(
            self._listed(),
            (_UNUSED,),
            name,
            value,
            self._literal(False),
            tree.Ident(name, place=self._place),
            body,
            place=self._place,
        )

    def _sort_by(self, node: tree.Macro) -> Core:
        """``bind(input, operand, input.sorted(input.map(variable, key)))``."""
        again = tree.Ident(_SORTED, place=self._place)
        keys = self._list(
            tree.Macro("map", again, node.variables, node.arguments, place=self._place)
        )
        by_keys = self._call(
            "@sortByAssociatedKeys", keys, target=tree.Ident(_SORTED, place=self._place)
        )
        return self._bind(_SORTED, node.operand, by_keys)

    def _optional(self, node: tree.Macro) -> Core:
        """``operand.hasValue() ? of(bind(variable, operand.value(), result)) : none()``."""
        value = self._call("value", target=Repeat(node.operand, place=self._place))
        result: Core = self._bind(node.variables[0], value, node.arguments[0])
        if node.name == "optMap":
            result = self._call("optional.of", result)
        return tree.Conditional(
            self._call("hasValue", target=node.operand),
            result,  # type: ignore[arg-type]
            self._call("optional.none"),
            place=self._place,
        )
