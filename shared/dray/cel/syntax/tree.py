"""The tree of a CEL expression: immutable, typed, as written (macros are not expanded).

Two trees are equal if they mean the same text; the positions of nodes are not compared. The nodes
are msgspec Structs because a selector has a hundred of them, and Structs are made ten times as fast
as frozen dataclasses.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace as _replace

from dray.cel.source import NOWHERE, SourceLocation


class SyntaxNode(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Base of all nodes."""

    place: SourceLocation = NOWHERE

    def _meaning(self) -> list[object]:
        return [getattr(self, name) for name in self.__struct_fields__ if name != "place"]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SyntaxNode)
            and type(self) is type(other)
            and self._meaning() == other._meaning()
        )

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct's own compares identities

    def __hash__(self) -> int:
        return hash((type(self).__name__, *self._meaning()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._meaning()))})"


class Literal(SyntaxNode, frozen=True, eq=False):
    """``kind`` is one of null, bool, int, uint, double, string, bytes."""

    kind: str
    value: bool | int | float | str | bytes | None


class Ident(SyntaxNode, frozen=True, eq=False):
    """A variable or type name; a leading dot is part of the name."""

    name: str


class Select(SyntaxNode, frozen=True, eq=False):
    """``operand.field``, or ``operand.?field`` when optional."""

    operand: "Expr"
    field: str
    optional: bool = False


class Has(SyntaxNode, frozen=True, eq=False):
    """``has(operand.field)``."""

    operand: "Expr"
    field: str


class Index(SyntaxNode, frozen=True, eq=False):
    """``operand[key]``, or ``operand[?key]`` when optional."""

    operand: "Expr"
    key: "Expr"
    optional: bool = False


class Call(SyntaxNode, frozen=True, eq=False):
    """``function(arguments)``, or ``target.function(arguments)``."""

    function: str
    arguments: tuple["Expr", ...]
    target: "Expr | None" = None


class Unary(SyntaxNode, frozen=True, eq=False):
    """``!operand`` or ``-operand``."""

    operator: str
    operand: "Expr"


class Binary(SyntaxNode, frozen=True, eq=False):
    """Arithmetic, comparison or ``in``."""

    operator: str
    left: "Expr"
    right: "Expr"


class Logical(SyntaxNode, frozen=True, eq=False):
    """A chain of two or more terms joined by ``&&`` or ``||``."""

    operator: str
    terms: tuple["Expr", ...]


class Conditional(SyntaxNode, frozen=True, eq=False):
    """``condition ? then : otherwise``."""

    condition: "Expr"
    then: "Expr"
    otherwise: "Expr"


class ListItem(SyntaxNode, frozen=True, eq=False):
    """One element of a list literal. An optional element (``?x``) may be absent from the list."""

    value: "Expr"
    optional: bool = False


class ListLiteral(SyntaxNode, frozen=True, eq=False):
    """``[a, ?b]``."""

    items: tuple[ListItem, ...]


class MapEntry(SyntaxNode, frozen=True, eq=False):
    """One entry of a map literal. An optional entry (``?key: x``) may be absent from the map."""

    key: "Expr"
    value: "Expr"
    optional: bool = False


class MapLiteral(SyntaxNode, frozen=True, eq=False):
    """``{key: value}``."""

    entries: tuple[MapEntry, ...]


class MessageField(SyntaxNode, frozen=True, eq=False):
    """One field of a message literal."""

    name: str
    value: "Expr"
    optional: bool = False


class MessageLiteral(SyntaxNode, frozen=True, eq=False):
    """``Type{field: value}``. Only protobuf's own message types pass the check."""

    name: str
    fields: tuple[MessageField, ...]


class Macro(SyntaxNode, frozen=True, eq=False):
    """A macro over a list, map or optional, such as ``operand.all(x, …)``."""

    name: str
    operand: "Expr"
    variables: tuple[str, ...]
    arguments: tuple["Expr", ...]


class Bind(SyntaxNode, frozen=True, eq=False):
    """``cel.bind(variable, value, body)``."""

    variable: str
    value: "Expr"
    body: "Expr"


Expr = (
    Literal
    | Ident
    | Select
    | Has
    | Index
    | Call
    | Unary
    | Binary
    | Logical
    | Conditional
    | ListLiteral
    | MapLiteral
    | MessageLiteral
    | Macro
    | Bind
)
AnyNode = TypeVar("AnyNode", bound=SyntaxNode)


def replace(node: AnyNode, **changes: Any) -> AnyNode:
    """``node`` with other values for some fields."""
    return _replace(node, **changes)


def children(node: Expr) -> tuple[Expr, ...]:
    """The expressions directly below ``node``, in the order of the text."""
    match node:
        case Literal() | Ident():
            return ()
        case Select() | Has() | Unary():
            return (node.operand,)
        case Index():
            return (node.operand, node.key)
        case Call():
            return node.arguments if node.target is None else (node.target, *node.arguments)
        case Binary():
            return (node.left, node.right)
        case Logical():
            return node.terms
        case Conditional():
            return (node.condition, node.then, node.otherwise)
        case ListLiteral():
            return tuple(item.value for item in node.items)
        case MapLiteral():
            return tuple(part for entry in node.entries for part in (entry.key, entry.value))
        case MessageLiteral():
            return tuple(part.value for part in node.fields)
        case Macro():
            return (node.operand, *node.arguments)
        case Bind():
            return (node.value, node.body)


def with_children(node: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """``node`` with ``change`` applied to each expression directly below it."""
    match node:
        case Literal() | Ident():
            return node
        case Select() | Has() | Unary():
            return replace(node, operand=change(node.operand))
        case Index():
            return replace(node, operand=change(node.operand), key=change(node.key))
        case Call():
            target = None if node.target is None else change(node.target)
            return replace(node, target=target, arguments=tuple(map(change, node.arguments)))
        case Binary():
            return replace(node, left=change(node.left), right=change(node.right))
        case Logical():
            return replace(node, terms=tuple(map(change, node.terms)))
        case Macro():
            arguments = tuple(map(change, node.arguments))
            return replace(node, operand=change(node.operand), arguments=arguments)
        case Bind():
            return replace(node, value=change(node.value), body=change(node.body))
        case Conditional():
            condition, then = change(node.condition), change(node.then)
            return replace(node, condition=condition, then=then, otherwise=change(node.otherwise))
        case ListLiteral():
            items = (replace(item, value=change(item.value)) for item in node.items)
            return replace(node, items=tuple(items))
        case MapLiteral():
            entries = (replace(e, key=change(e.key), value=change(e.value)) for e in node.entries)
            return replace(node, entries=tuple(entries))
        case MessageLiteral():
            fields = (replace(part, value=change(part.value)) for part in node.fields)
            return replace(node, fields=tuple(fields))
