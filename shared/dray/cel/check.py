"""The static check of an expression: the type of every node and the overloads of every call.

The rules are those of cel-go with the options that Kubernetes sets: aggregate literals are
homogeneous, numbers of different kinds compare.
"""

from dataclasses import dataclass, field

from dray.cel import tree, types
from dray.cel.checker import LITERAL_TYPES, Checker
from dray.cel.constants import refused_constants
from dray.cel.environment import DEFAULT, Environment
from dray.cel.errors import CelTypeError, Refusal, all_of, first_of
from dray.cel.expansion import Core
from dray.cel.tree import Expr, Node
from dray.cel.types import Type
from dray.cel.validation import Literals, validate


@dataclass(frozen=True, slots=True)
class Checked:
    """A tree that passed the check, and what the check found out."""

    root: Expr
    source: str
    environment: Environment
    result: Type
    _types: dict[int, Type] = field(repr=False, compare=False)
    _overloads: dict[int, tuple[str, ...]] = field(repr=False, compare=False)
    _expansions: dict[int, Core] = field(repr=False, compare=False)
    _known: types.Substitution = field(repr=False, compare=False)
    literals: Literals = field(repr=False, compare=False)

    def type_of(self, node: Node) -> Type:
        """The type of a node of this tree, or of an expansion; without variables."""
        if isinstance(node, tree.Literal):
            return LITERAL_TYPES[node.kind]
        return self._known.closed(self._types[id(node)])

    def is_visited(self, node: Node) -> bool:
        """Whether ``node`` is an expression by itself, and not part of a dotted name."""
        return id(node) in self._types or isinstance(node, tree.Literal)

    def closed(self, found: Type) -> Type:
        """A type met in the check with its variables replaced, unknown ones by dyn."""
        return self._known.closed(found)

    def overloads_of(self, node: Node) -> tuple[str, ...]:
        """cel-go's names of the overloads that a call, operator or index can dispatch to.

        One where the types tell; more where an operand is dynamic; none for other nodes.
        """
        return self._overloads.get(id(node), ())

    def expansion_of(self, node: tree.Macro | tree.Bind) -> Core:
        """What a macro stands for; its nodes have types and overloads of their own."""
        return self._expansions[id(node)]


def refused_variables(checked: Checked) -> list[Refusal]:
    """Variables that hold types: cel-go takes their names for names of types, which they aren't."""
    return [
        Refusal(f"program instantiation failed: reference to undefined type: {name}", node.place)
        for node in checked.literals.variables
        if checked.type_of(node).kind == "type"
        and (name := node.name.removeprefix(".")) not in types.TYPE_NAMES
    ]


def check(root: Expr, source: str, environment: Environment = DEFAULT) -> Checked:
    """Check ``root``, parsed from ``source``; any result type will do.

    Raises:
        CelTypeError: undeclared name, unknown field, no matching overload, bad literal.
    """
    checker = Checker(source, environment)
    result = checker.type_of(root)
    if checker.errors:
        raise all_of(checker.errors, source)
    known = checker.known
    checked = Checked(
        root,
        source,
        environment,
        known.closed(result),
        checker.types,
        checker.overloads,
        checker.expansions,
        known,
        checker.literals,
    )
    if checker.literals.any:
        validate(checked, checker.literals)
    return checked


def check_selector(root: Expr, source: str, environment: Environment = DEFAULT) -> Checked:
    """Check that ``root``, parsed from ``source``, can select devices.

    Raises:
        CelTypeError: undeclared name, unknown field, no matching overload, not a bool.
    """
    checked = check(root, source, environment)
    if checked.result in environment.results:
        refused = refused_constants(checked.literals) + refused_variables(checked)
        if refused:
            raise first_of(refused, source)
        return checked
    reason = f"must evaluate to bool or the unknown type, not {checked.result.declared}"
    raise CelTypeError(reason, source, root.place.line, root.place.column)
