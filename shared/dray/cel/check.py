"""The static check of an expression: the type of every node and the overloads of every call.

The rules are those of cel-go's checker with the options that Kubernetes sets: aggregate
literals are homogeneous, numbers of different kinds compare.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dray.cel import tree, types
from dray.cel.constants import refused_constants
from dray.cel.environment import DEFAULT, Environment
from dray.cel.errors import CelTypeError, Refusal, first_of
from dray.cel.expansion import Again, Core, Fold, expanded
from dray.cel.messages import MESSAGES, message_type
from dray.cel.signatures import Functions, functions_of
from dray.cel.tree import Expr, Node, Place
from dray.cel.types import BOOL, DYN, ERROR, Type, list_of, map_of, optional_of
from dray.cel.validation import Literals, validate

_LITERALS: Final = {
    "null": types.NULL,
    **{t.name: t for t in (BOOL, types.INT, types.UINT, types.DOUBLE, types.STRING, types.BYTES)},
}
_DOTTED: Final = frozenset(name.rpartition(".")[2] for name in types.TYPE_NAMES if "." in name)


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
            return _LITERALS[node.kind]
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


def check(root: Expr, source: str, environment: Environment = DEFAULT) -> Checked:
    """Check ``root``, parsed from ``source``; any result type will do.

    Raises:
        CelTypeError: undeclared name, unknown field, no matching overload, bad literal.
    """
    checker = _Checker(source, environment)
    result = checker.type_of(root)
    if checker.errors:
        raise first_of(checker.errors, source)
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
        refused = refused_constants(checked.literals)
        if refused:
            raise first_of(refused, source)
        return checked
    reason = f"must evaluate to bool or the unknown type, not {checked.result.declared}"
    raise CelTypeError(reason, source, root.place.line, root.place.column)


class _Checker:
    """One check of one expression; ``type_of`` fills the tables."""

    __slots__ = (
        "_device",
        "_functions",
        "_global",
        "_scope",
        "_source",
        "errors",
        "expansions",
        "known",
        "literals",
        "overloads",
        "types",
    )

    def __init__(self, source: str, environment: Environment) -> None:
        self._source = source
        self._functions: Functions = functions_of(environment)
        self._device = environment.device_fields
        self._scope: dict[str, Type] = {"device": types.DEVICE}
        self._global = self._scope if environment.minor >= 37 else None
        self.errors: list[Refusal] = []
        self.known = types.Substitution()
        self.types: dict[int, Type] = {}
        self.overloads: dict[int, tuple[str, ...]] = {}
        self.expansions: dict[int, Core] = {}
        self.literals = Literals()

    def type_of(self, node: Core) -> Type:
        """The type of ``node``, in which variables may still be open."""
        if node.__class__ is tree.Literal:
            return _LITERALS[node.kind]
        found = self.types[id(node)] = _RULES[node.__class__](self, node)
        return found

    def _refuse(self, reason: str, place: Place, name: str = "", known: Iterable[str] = ()) -> Type:
        """Note what is wrong with what stands at ``place``, and go on with the rest."""
        self.errors.append(Refusal(reason, place, name, known))
        return ERROR

    # Names and fields.

    def _undeclared(self, name: str, place: Place, known: Iterable[str]) -> Type:
        reason = f"undeclared reference to '{name}' (in container '')"
        return self._refuse(reason, place, name, known)

    def ident(self, node: tree.Ident) -> Type:
        name = node.name
        if name[0] == ".":
            name = name[1:]
            scope = self._global or self._scope
        else:
            scope = self._scope
        found = scope.get(name) or types.TYPE_NAMES.get(name)
        if found is None:
            return self._undeclared(node.name, node.place, (*self._scope, *types.TYPE_NAMES))
        return found

    def select(self, node: tree.Select) -> Type:
        if node.field in _DOTTED and not node.optional:
            named = types.TYPE_NAMES.get(_qualified(node))
            if named is not None:
                return named
        found = self._field(node.operand, node.field, node.place, node.optional)
        if node.optional:
            self.overloads[id(node)] = ("select_optional_field",)
        return found

    def has(self, node: tree.Has) -> Type:
        self._field(node.operand, node.field, node.place, optional=False)
        return BOOL

    def _field(self, node: Expr, name: str, place: Place, optional: bool) -> Type:
        operand = self.type_of(node)
        if operand.is_open:
            operand = self.known.resolve(operand)
        inner, wrap = operand, optional
        if operand.name == "optional_type":
            inner, wrap = operand.parameters[0], True
        found = self._member(inner, name, place)
        if found.is_open:
            found = self.known.resolve(found)
        return optional_of(found) if wrap else found

    def _member(self, operand: Type, name: str, place: Place) -> Type:
        if operand.kind == "map":
            return operand.parameters[1]
        if operand is types.DEVICE:
            if name not in self._device:
                return self._refuse(f"undefined field '{name}'", place, name, self._device)
            return self._device[name]
        if operand.is_dynamic:
            return DYN
        if operand.kind == "param":
            self.known.assign((DYN,), (operand,))
            return DYN
        if operand.kind == "struct":
            return self._refuse(f"unexpected failed resolution of '{operand.name}'", place)
        return self._refuse(f"type '{operand}' does not support field selection", place)

    # Calls.

    def _resolved(
        self, node: Node, name: str, given: tuple[Type, ...], *, method: bool = False
    ) -> Type:
        found = self._functions.resolve(name, given, self.known, is_method=method)
        if found is None:
            return self._no_overload(name, given, node.place, method=method)
        self.overloads[id(node)] = found.overloads
        return found.result

    def _no_overload(self, name: str, given: Sequence[Type], place: Place, *, method: bool) -> Type:
        shown = [str(self.known.closed(t)) for t in given]
        text = ", ".join(shown[1:] if method else shown)
        applied = f"{shown[0]}.({text})" if method else f"({text})"
        return self._refuse(
            f"found no matching overload for '{name}' applied to '{applied}'", place
        )

    def index(self, node: tree.Index) -> Type:
        given = (self.type_of(node.operand), self.type_of(node.key))
        if given[1] is not types.STRING and given[1] is not types.INT:
            self.literals.keys.append(node.key)
        return self._resolved(node, "_[?_]" if node.optional else "_[_]", given)

    def unary(self, node: tree.Unary) -> Type:
        return self._resolved(node, node.operator + "_", (self.type_of(node.operand),))

    def binary(self, node: tree.Binary) -> Type:
        given = (self.type_of(node.left), self.type_of(node.right))
        name = "@in" if node.operator == "in" else f"_{node.operator}_"
        return self._resolved(node, name, given)

    def conditional(self, node: tree.Conditional) -> Type:
        condition, then = self.type_of(node.condition), self.type_of(node.then)
        return self._resolved(node, "_?_:_", (condition, then, self.type_of(node.otherwise)))

    def logical(self, node: tree.Logical) -> Type:
        self.overloads[id(node)] = ("logical_and" if node.operator == "&&" else "logical_or",)
        for term in node.terms:
            found = self.type_of(term)
            if found is not BOOL:
                self._expect(BOOL, found, term.place)
        return BOOL

    def _expect(self, wanted: Type, found: Type, place: Place) -> None:
        if not self.known.assign((found,), (wanted,)):
            expected, seen = self.known.closed(wanted), self.known.closed(found)
            self._refuse(f"expected type '{expected}' but found '{seen}'", place)

    def call(self, node: tree.Call) -> Type:
        name, target = node.function.removeprefix("."), node.target
        self.literals.calls.append(node)
        exempt = name == "format" and target is not None
        self.literals.exempt += exempt
        given = tuple([self.type_of(argument) for argument in node.arguments])
        if target is not None:
            qualified = self._namespaced(target, name)
            if qualified:
                name, target = qualified, None
            else:
                given = (self.type_of(target), *given)
        self.literals.exempt -= exempt
        if name not in self._functions:
            return self._undeclared(node.function, node.place, self._functions)
        return self._resolved(node, name, given, method=target is not None)

    def _namespaced(self, target: Core, name: str) -> str:
        """The name of a function in a namespace, such as ``optional.of``."""
        if not isinstance(target, tree.Ident):
            return ""
        full = f"{target.name.removeprefix('.')}.{name}"
        return full if full in self._functions else ""

    # Literals of lists, maps and messages.

    def list_literal(self, node: tree.ListLiteral) -> Type:
        elements = [self._element(item.value, item.optional) for item in node.items]
        self.literals.add_list(elements)
        return list_of(self._joined(elements))

    def map_literal(self, node: tree.MapLiteral) -> Type:
        keys, values = list[tuple[Type, Place]](), list[tuple[Type, Place]]()
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            keys.append((self.type_of(entry.key), entry.key.place))
            key = self._join(key, keys[-1][0])
            values.append(self._element(entry.value, entry.optional))
            value = self._join(value, values[-1][0])
        self.literals.add_list(keys)
        self.literals.add_list(values)
        return map_of(key or self.known.fresh(), value or self.known.fresh())

    def _joined(self, elements: list[tuple[Type, Place]]) -> Type:
        joined: Type | None = None
        for found, _ in elements:
            joined = found if joined is found else self._join(joined, found)
        return joined or self.known.fresh()

    def _join(self, before: Type | None, found: Type) -> Type:
        """The type of elements so far; mixed ones are refused later, where that is due."""
        if before is None:
            return found
        return types.join(before, found) if self.known.assign((before,), (found,)) else DYN

    def _element(self, node: Expr, optional: bool) -> tuple[Type, Place]:
        found = self.type_of(node)
        if not optional or found.is_dynamic:
            return found, node.place
        if found.name != "optional_type":
            shown = self.known.closed(found)
            reason = f"expected type '{optional_of(shown)}' but found '{shown}'"
            return self._refuse(reason, node.place), node.place
        return found.parameters[0], node.place

    def message(self, node: tree.Message) -> Type:
        name = node.name.removeprefix(".")
        if name not in MESSAGES:
            if name in types.TYPE_NAMES:
                return self._refuse(f"'{name}' is not a message type", node.place)
            return self._undeclared(node.name, node.place, MESSAGES)
        for entry in node.fields:
            self._message_field(name, entry)
        return message_type(name)

    def _message_field(self, message: str, entry: tree.MessageField) -> None:
        found, _ = self._element(entry.value, entry.optional)
        wanted = MESSAGES[message].get(entry.name)
        if wanted is None:
            known = MESSAGES[message]
            self._refuse(f"undefined field '{entry.name}'", entry.place, entry.name, known)
        elif not self.known.assign((wanted,), (found,)):
            reason = f"expected type of field '{entry.name}' is '{wanted}'"
            reason += f" but provided type is '{self.known.closed(found)}'"
            self._refuse(reason, entry.place)

    # Macros.

    def macro(self, node: tree.Macro | tree.Bind) -> Type:
        if isinstance(node, tree.Macro) and node.name == "sortBy" and "sort" not in self._functions:
            return self._undeclared(node.name, node.place, self._functions)
        core = self.expansions[id(node)] = expanded(node)
        return self.type_of(core)

    def again(self, node: Again) -> Type:
        return self.types.get(id(node.node)) or self.type_of(node.node)

    def fold(self, node: Fold) -> Type:
        over, start = self.type_of(node.range), self.type_of(node.start)
        outer = self._scope
        inside = {**outer, node.accumulator: start}
        if not node.is_bind:
            self._scope = {**inside, **self._variables(node, self.known.resolve(over))}
            self._expect_step(node.condition, BOOL)
            self._expect_step(node.step, start)
        else:
            self._scope = inside
            self.type_of(node.step)
        self._scope = inside
        result = self.type_of(node.result)
        self._scope = outer
        return self.known.resolve(result)

    def _expect_step(self, node: Core, wanted: Type) -> None:
        found = self.type_of(node)
        if not self.known.assign((wanted,), (found,)):
            expected, seen = self.known.closed(wanted), self.known.closed(found)
            self._refuse(f"expected type '{expected}' but found '{seen}'", node.place)

    def _variables(self, node: Fold, over: Type) -> dict[str, Type]:
        elements = types.elements_of(over)
        if elements is None:
            reason = f"expression of type '{over}' cannot be range of a comprehension"
            error = self._refuse(f"{reason} (must be list, map, or dynamic)", node.range.place)
            elements = (error, error, error)
        if over.kind == "param":
            self.known.assign((DYN,), (over,))
        key, value, single = elements
        of_variables = (single,) if len(node.variables) == 1 else (key, value)
        return dict(zip(node.variables, of_variables, strict=True))


_RULES: Final[dict[type, Callable[[_Checker, Any], Type]]] = {
    tree.Ident: _Checker.ident,
    tree.Select: _Checker.select,
    tree.Has: _Checker.has,
    tree.Index: _Checker.index,
    tree.Unary: _Checker.unary,
    tree.Binary: _Checker.binary,
    tree.Conditional: _Checker.conditional,
    tree.Logical: _Checker.logical,
    tree.Call: _Checker.call,
    tree.ListLiteral: _Checker.list_literal,
    tree.MapLiteral: _Checker.map_literal,
    tree.Message: _Checker.message,
    tree.Macro: _Checker.macro,
    tree.Bind: _Checker.macro,
    Fold: _Checker.fold,
    Again: _Checker.again,
}


def _qualified(node: Expr) -> str:
    """``a.b.c`` where the node is such a name; empty where it is something else."""
    parts = list[str]()
    while isinstance(node, tree.Select) and not node.optional:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, tree.Ident):
        return ""
    return ".".join([node.name.removeprefix("."), *reversed(parts)])
