"""The rules of the check: the type of each kind of node, from the types of the nodes below it.

They are the rules of cel-go's checker. An error does not end the check, so that the first error in
the text can be reported.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dray.cel.check.check_result import LITERAL_TYPES, Literals
from dray.cel.check.expansion import Core, Fold, Repeat, expanded
from dray.cel.environment import Environment
from dray.cel.errors import CompileIssue
from dray.cel.source import SourceLocation
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr, SyntaxNode
from dray.cel.types import types
from dray.cel.types.device_types import device_fields
from dray.cel.types.messages import MESSAGES, message_type
from dray.cel.types.signatures import Functions, functions_of
from dray.cel.types.types import BOOL, DYN, ERROR, Type, list_of, map_of, optional_of

_DOTTED: Final = frozenset(name.rpartition(".")[2] for name in types.TYPE_NAMES if "." in name)


class Checker:
    """One check of one expression; ``type_of`` fills the tables."""

    __slots__ = (
        "device",
        "errors",
        "expansions",
        "functions",
        "known",
        "literals",
        "outermost",
        "overloads",
        "scope",
        "source",
        "types",
    )

    def __init__(self, source: str, environment: Environment) -> None:
        self.source = source
        self.functions: Functions = functions_of(environment)
        self.device = device_fields(environment)
        self.scope: dict[str, Type] = {"device": types.DEVICE}
        self.outermost = self.scope if environment.minor >= 37 else None
        self.errors: list[CompileIssue] = []
        self.known = types.Substitution()
        self.types: dict[int, Type] = {}
        self.overloads: dict[int, tuple[str, ...]] = {}
        self.expansions: dict[int, Core] = {}
        self.literals = Literals()

    def type_of(self, node: Core) -> Type:
        """The type of ``node``. Its variables may still be open."""
        if node.__class__ is tree.Literal:
            return LITERAL_TYPES[node.kind]
        found = self.types[id(node)] = _RULES[node.__class__](self, node)
        return found

    # Names and fields.

    def ident(self, node: tree.Ident) -> Type:
        name = node.name
        if name[0] == ".":
            name = name[1:]
            scope = self.outermost or self.scope
        else:
            scope = self.scope
        found = scope.get(name)
        if found is None:
            found = types.TYPE_NAMES.get(name)
        elif found.kind == "type" or found.is_open:
            self.literals.variables.append(node)
        if found is None:
            return self.undeclared(node.name, node.place, (*self.scope, *types.TYPE_NAMES))
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

    def _field(self, node: Expr, name: str, place: SourceLocation, optional: bool) -> Type:
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

    def _member(self, operand: Type, name: str, place: SourceLocation) -> Type:
        if operand.kind == "map":
            return operand.parameters[1]
        if operand is types.DEVICE:
            if name not in self.device:
                return self.refuse(f"undefined field '{name}'", place, name, self.device)
            return self.device[name]
        if operand.is_dynamic:
            return DYN
        if operand.kind == "param":
            self.known.assign((DYN,), (operand,))
            return DYN
        if operand.kind == "struct":
            return self.refuse(f"unexpected failed resolution of '{operand.name}'", place)
        return self.refuse(f"type '{operand}' does not support field selection", place)

    # Calls.

    def index(self, node: tree.Index) -> Type:
        given = (self.type_of(node.operand), self.type_of(node.key))
        if given[1] is not types.STRING and given[1] is not types.INT:
            self.literals.keys.append(node.key)
        return self.resolved(node, "_[?_]" if node.optional else "_[_]", given)

    def unary(self, node: tree.Unary) -> Type:
        return self.resolved(node, node.operator + "_", (self.type_of(node.operand),))

    def binary(self, node: tree.Binary) -> Type:
        given = (self.type_of(node.left), self.type_of(node.right))
        name = "@in" if node.operator == "in" else f"_{node.operator}_"
        return self.resolved(node, name, given)

    def conditional(self, node: tree.Conditional) -> Type:
        condition, then = self.type_of(node.condition), self.type_of(node.then)
        return self.resolved(node, "_?_:_", (condition, then, self.type_of(node.otherwise)))

    def logical(self, node: tree.Logical) -> Type:
        self.overloads[id(node)] = ("logical_and" if node.operator == "&&" else "logical_or",)
        for term in node.terms:
            found = self.type_of(term)
            if found is not BOOL:
                self.expect(BOOL, found, term.place)
        return BOOL

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
        if name not in self.functions:
            return self.undeclared(node.function, node.place, self.functions)
        return self.resolved(node, name, given, method=target is not None)

    def _namespaced(self, target: Core, name: str) -> str:
        """The name of a function in a namespace, such as ``optional.of``."""
        if not isinstance(target, tree.Ident):
            return ""
        full = f"{target.name.removeprefix('.')}.{name}"
        return full if full in self.functions else ""

    # Literals of lists, maps and messages.

    def list_literal(self, node: tree.ListLiteral) -> Type:
        elements = [self._element(item.value, item.optional) for item in node.items]
        self.literals.add_list(elements)
        return list_of(self._joined(elements))

    def map_literal(self, node: tree.MapLiteral) -> Type:
        keys, values = list[tuple[Type, SourceLocation]](), list[tuple[Type, SourceLocation]]()
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            keys.append((self.type_of(entry.key), entry.key.place))
            key = self._join(key, keys[-1][0])
            values.append(self._element(entry.value, entry.optional))
            value = self._join(value, values[-1][0])
        self.literals.add_map(keys, values)
        return map_of(key or self.known.fresh(), value or self.known.fresh())

    def _joined(self, elements: list[tuple[Type, SourceLocation]]) -> Type:
        joined: Type | None = None
        for found, _ in elements:
            joined = found if joined is found else self._join(joined, found)
        return joined or self.known.fresh()

    def _join(self, before: Type | None, found: Type) -> Type:
        """The type of the elements so far. If mixed types must be refused, that happens later."""
        if before is None:
            return found
        return types.join(before, found) if self.known.assign((before,), (found,)) else DYN

    def _element(self, node: Expr, optional: bool) -> tuple[Type, SourceLocation]:
        found = self.type_of(node)
        if not optional or found.is_dynamic:
            return found, node.place
        if found.name != "optional_type":
            shown = self.known.closed(found)
            reason = f"expected type '{optional_of(shown)}' but found '{shown}'"
            self.refuse(reason, node.place)
            return found, node.place
        return found.parameters[0], node.place

    def message(self, node: tree.MessageLiteral) -> Type:
        name = node.name.removeprefix(".")
        fields = self.device if name == types.DEVICE.name else MESSAGES.get(name)
        if fields is None:
            if name in types.TYPE_NAMES:
                return self.refuse(f"'{name}' is not a message type", node.place)
            return self.undeclared(node.name, node.place, MESSAGES)
        for entry in node.fields:
            self._message_field(fields, entry)
        return types.DEVICE if fields is self.device else message_type(name)

    def _message_field(self, fields: dict[str, Type], entry: tree.MessageField) -> None:
        found, _ = self._element(entry.value, entry.optional)
        wanted = fields.get(entry.name)
        if wanted is None:
            self.refuse(f"undefined field '{entry.name}'", entry.place, entry.name, fields)
        elif not self.known.assign((wanted,), (found,)):
            reason = f"expected type of field '{entry.name}' is '{wanted}'"
            reason += f" but provided type is '{self.known.closed(found)}'"
            self.refuse(reason, entry.place)

    # Macros.

    def macro(self, node: tree.Macro | tree.Bind) -> Type:
        if isinstance(node, tree.Macro) and node.name == "sortBy" and "sort" not in self.functions:
            return self.undeclared(node.name, node.place, self.functions)
        core = self.expansions[id(node)] = expanded(node)
        return self.type_of(core)

    def again(self, node: Repeat) -> Type:
        return self.types.get(id(node.node)) or self.type_of(node.node)

    def fold(self, node: Fold) -> Type:
        over, start = self.type_of(node.range), self.type_of(node.start)
        outer = self.scope
        inside = {**outer, node.accumulator: start}
        if not node.is_bind:
            self.scope = {**inside, **self._variables(node, self.known.resolve(over))}
            self._expect_step(node.condition, BOOL)
            self._expect_step(node.step, start)
        else:
            self.scope = inside
            self.type_of(node.step)
        self.scope = inside
        result = self.type_of(node.result)
        self.scope = outer
        return self.known.resolve(result)

    def _expect_step(self, node: Core, wanted: Type) -> None:
        found = self.type_of(node)
        if not self.known.assign((wanted,), (found,)):
            expected, seen = self.known.closed(wanted), self.known.closed(found)
            self.refuse(f"expected type '{expected}' but found '{seen}'", node.place)

    def _variables(self, node: Fold, over: Type) -> dict[str, Type]:
        elements = _elements_of(over)
        if elements is None:
            reason = f"expression of type '{over}' cannot be range of a comprehension"
            error = self.refuse(f"{reason} (must be list, map, or dynamic)", node.range.place)
            elements = (error, error, error)
        if over.kind == "param":
            self.known.assign((DYN,), (over,))
        key, value, single = elements
        of_variables = (single,) if len(node.variables) == 1 else (key, value)
        return dict(zip(node.variables, of_variables, strict=True))

    # Overloads and refusals.

    def refuse(
        self, reason: str, place: SourceLocation, name: str = "", known: Iterable[str] = ()
    ) -> Type:
        """Add an error at ``place``; the check continues."""
        self.errors.append(CompileIssue(reason, place, name, known))
        return ERROR

    def undeclared(self, name: str, place: SourceLocation, known: Iterable[str]) -> Type:
        reason = f"undeclared reference to '{name}' (in container '')"
        return self.refuse(reason, place, name, known)

    def resolved(
        self, node: SyntaxNode, name: str, given: tuple[Type, ...], *, method: bool = False
    ) -> Type:
        found = self.functions.resolve(name, given, self.known, is_method=method)
        if found is None:
            return self._no_overload(name, given, node.place, method=method)
        self.overloads[id(node)] = found.overloads
        return found.result

    def _no_overload(
        self, name: str, given: Sequence[Type], place: SourceLocation, *, method: bool
    ) -> Type:
        shown = [str(self.known.closed(t)) for t in given]
        text = ", ".join(shown[1:] if method else shown)
        applied = f"{shown[0]}.({text})" if method else f"({text})"
        return self.refuse(f"found no matching overload for '{name}' applied to '{applied}'", place)

    def expect(self, wanted: Type, found: Type, place: SourceLocation) -> None:
        if not self.known.assign((found,), (wanted,)):
            expected, seen = self.known.closed(wanted), self.known.closed(found)
            self.refuse(f"expected type '{expected}' but found '{seen}'", place)


_RULES: Final[dict[type, Callable[[Checker, Any], Type]]] = {
    tree.Ident: Checker.ident,
    tree.Select: Checker.select,
    tree.Has: Checker.has,
    tree.Index: Checker.index,
    tree.Unary: Checker.unary,
    tree.Binary: Checker.binary,
    tree.Conditional: Checker.conditional,
    tree.Logical: Checker.logical,
    tree.Call: Checker.call,
    tree.ListLiteral: Checker.list_literal,
    tree.MapLiteral: Checker.map_literal,
    tree.MessageLiteral: Checker.message,
    tree.Macro: Checker.macro,
    tree.Bind: Checker.macro,
    Fold: Checker.fold,
    Repeat: Checker.again,
}


def _qualified(node: Expr) -> str:
    """``a.b.c`` if the node is such a name; empty for other nodes."""
    parts = list[str]()
    while isinstance(node, tree.Select) and not node.optional:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, tree.Ident):
        return ""
    return ".".join([node.name.removeprefix("."), *reversed(parts)])


def _elements_of(found: Type) -> tuple[Type, Type, Type] | None:
    """Types of key, value and single variable of a loop over ``found``; None if it has no loop.

    A list's keys are its indexes. A loop over the value of an attribute (*any*) is not possible.
    """
    if found.kind == "list":
        return types.INT, found.parameters[0], found.parameters[0]
    if found.kind == "map":
        return found.parameters[0], found.parameters[1], found.parameters[0]
    if found.kind in ("dyn", "param"):
        return types.DYN, types.DYN, types.DYN
    if found.kind == "error":
        return found, found, found
    return None
