"""The tree of a CEL expression: immutable, typed, as written (macros are not expanded).

Two trees are equal when they mean the same text; where a node stood is not compared.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Place(NamedTuple):
    """Where a node stands: its extent in the text, and the point that errors name.

    ``start`` and ``end`` are offsets from 0; ``line`` and ``column`` count from 1 and are those
    of the operator, dot or parenthesis, which Kubernetes' messages point at too.
    """

    start: int
    end: int
    line: int
    column: int


NOWHERE = Place(0, 0, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What every node has."""

    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """``kind`` is one of null, bool, int, uint, double, string, bytes."""

    kind: str
    value: bool | int | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Ident(Node):
    """A variable or type name; a leading dot is part of the name."""

    name: str


@dataclass(frozen=True, slots=True)
class Select(Node):
    """``operand.field``, or ``operand.?field`` when optional."""

    operand: "Expr"
    field: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Has(Node):
    """``has(operand.field)``."""

    operand: "Expr"
    field: str


@dataclass(frozen=True, slots=True)
class Index(Node):
    """``operand[key]``, or ``operand[?key]`` when optional."""

    operand: "Expr"
    key: "Expr"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Call(Node):
    """``function(arguments)``, or ``target.function(arguments)``."""

    function: str
    arguments: tuple["Expr", ...]
    target: "Expr | None" = None


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """``!operand`` or ``-operand``."""

    operator: str
    operand: "Expr"


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """Arithmetic, comparison or ``in``."""

    operator: str
    left: "Expr"
    right: "Expr"


@dataclass(frozen=True, slots=True)
class Logical(Node):
    """A chain of two or more terms joined by ``&&`` or ``||``."""

    operator: str
    terms: tuple["Expr", ...]


@dataclass(frozen=True, slots=True)
class Conditional(Node):
    """``condition ? then : otherwise``."""

    condition: "Expr"
    then: "Expr"
    otherwise: "Expr"


@dataclass(frozen=True, slots=True)
class ListItem(Node):
    """One element of a list literal; optional ones (``?x``) may vanish."""

    value: "Expr"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ListLiteral(Node):
    """``[a, ?b]``."""

    items: tuple[ListItem, ...]


@dataclass(frozen=True, slots=True)
class MapEntry(Node):
    """One entry of a map literal; optional ones (``?key: x``) may vanish."""

    key: "Expr"
    value: "Expr"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class MapLiteral(Node):
    """``{key: value}``."""

    entries: tuple[MapEntry, ...]


@dataclass(frozen=True, slots=True)
class MessageField(Node):
    """One field of a message literal."""

    name: str
    value: "Expr"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Message(Node):
    """``Type{field: value}``: CEL's syntax, though the DRA environment has no such type."""

    name: str
    fields: tuple[MessageField, ...]


@dataclass(frozen=True, slots=True)
class Macro(Node):
    """A macro over a list, map or optional: ``operand.all(x, …)`` and its relatives."""

    name: str
    operand: "Expr"
    variables: tuple[str, ...]
    arguments: tuple["Expr", ...]


@dataclass(frozen=True, slots=True)
class Bind(Node):
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
    | Message
    | Macro
    | Bind
)


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
        case Message():
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
        case Message():
            fields = (replace(part, value=change(part.value)) for part in node.fields)
            return replace(node, fields=tuple(fields))
