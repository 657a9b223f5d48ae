"""A tree that passed the static check: the type of every node, the overloads of every call."""

from dataclasses import dataclass, field
from typing import Final

from dray.cel.check.expansion import Core
from dray.cel.environment import Environment
from dray.cel.source import SourceLocation
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr, SyntaxNode
from dray.cel.types import types
from dray.cel.types.types import BOOL, Type

LITERAL_TYPES: Final = {
    "null": types.NULL,
    **{t.name: t for t in (BOOL, types.INT, types.UINT, types.DOUBLE, types.STRING, types.BYTES)},
}
Elements = list[tuple[Type, SourceLocation]]
"""The type and position of each element."""


class Literals:
    """The calls, keys and aggregate literals found so far; ``exempt`` > 0 inside ``format``."""

    __slots__ = ("calls", "exempt", "keys", "lists", "maps", "variables")

    def __init__(self) -> None:
        self.calls: list[tree.Call] = []
        self.keys: list[Expr] = []
        """Keys of indexes, except plain strings and ints."""
        self.variables: list[tree.Ident] = []
        """Uses of variables that may hold a type."""
        self.lists: list[Elements] = []
        self.maps: list[Elements] = []
        """Each entry is the keys, or the values, of one map."""
        self.exempt = 0

    @property
    def any(self) -> bool:
        """Whether there is anything to validate."""
        return bool(self.calls or self.lists or self.maps)

    def add_list(self, elements: Elements) -> None:
        """Add elements that must have one type."""
        if len(elements) > 1 and not self.exempt:
            self.lists.append(elements)

    def add_map(self, keys: Elements, values: Elements) -> None:
        """Add keys that must have one type, and values that must have one type."""
        if len(keys) > 1 and not self.exempt:
            self.maps += (keys, values)


@dataclass(frozen=True, slots=True)
class CheckedExpr:
    """A tree that passed the check, and the results of the check."""

    root: Expr
    source: str
    environment: Environment
    result: Type
    _types: dict[int, Type] = field(repr=False, compare=False)
    _overloads: dict[int, tuple[str, ...]] = field(repr=False, compare=False)
    _expansions: dict[int, Core] = field(repr=False, compare=False)
    _known: types.Substitution = field(repr=False, compare=False)
    literals: Literals = field(repr=False, compare=False)

    def type_of(self, node: SyntaxNode) -> Type:
        """The type, without variables, of a node of this tree or of an expansion."""
        if isinstance(node, tree.Literal):
            return LITERAL_TYPES[node.kind]
        return self._known.closed(self._types[id(node)])

    def is_visited(self, node: SyntaxNode) -> bool:
        """Whether ``node`` is an expression by itself, not part of a dotted name."""
        return id(node) in self._types or isinstance(node, tree.Literal)

    def closed(self, found: Type) -> Type:
        """A type found in the check, with its variables replaced; unknown ones become dyn."""
        return self._known.closed(found)

    def overloads_of(self, node: SyntaxNode) -> tuple[str, ...]:
        """cel-go's names of the overloads that a call, operator or index can dispatch to.

        One if the types determine it; more if an operand is dynamic; none for other nodes.
        """
        return self._overloads.get(id(node), ())

    def expansion_of(self, node: tree.Macro | tree.Bind) -> Core:
        """The expansion of a macro. Its nodes have types and overloads of their own."""
        return self._expansions[id(node)]
