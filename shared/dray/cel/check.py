"""The static check of an expression in the environment of DRA selectors.

The rules are those of cel-go's checker with the options that Kubernetes sets: aggregate
literals are homogeneous, numbers of different kinds compare, attributes are of type *any*.
"""

from collections.abc import Sequence
from typing import Final

from dray.cel import tree, types
from dray.cel.errors import CelTypeError, CelUnsupportedError, nearest
from dray.cel.macros import macro_result
from dray.cel.patterns import PatternError, compiled, is_installed
from dray.cel.signatures import UNSUPPORTED, known_names, overloads
from dray.cel.tree import Expr, Place
from dray.cel.types import BOOL, DYN, INT, Type, list_of, map_of, optional_of

_LITERALS: Final = {
    kind.name: kind
    for kind in (types.NULL, BOOL, INT, types.UINT, types.DOUBLE, types.STRING, types.BYTES)
}
_REGULAR: Final = ("matches", "find", "findAll")


def check_selector(root: Expr, source: str) -> None:
    """Check that ``root``, parsed from ``source``, can select devices.

    Raises:
        CelTypeError: undeclared name, unknown field, no matching overload, not a bool.
        CelUnsupportedError: a function that Kubernetes has and dray lacks.
    """
    checker = _Checker(source)
    result = checker.resolved(checker.type_of(root))
    checker.check_homogeneous()
    if result not in (BOOL, types.ANY):
        raise checker.error(f"must evaluate to bool or the unknown type, not {result}", root.place)


class _Checker:
    def __init__(self, source: str) -> None:
        self._source = source
        self._known = types.Substitution()
        self._scope: dict[str, Type] = {"device": types.DEVICE}
        self._aggregates: list[list[tuple[Type, Place]]] = []

    def resolved(self, found: Type) -> Type:
        return self._known.resolve(found, open_is_dyn=True)

    def error(self, reason: str, place: Place) -> CelTypeError:
        """The error to raise for what stands at ``place``."""
        return CelTypeError(reason, self._source, place.line, place.column)

    def type_of(self, node: Expr) -> Type:
        """The type of ``node``, in which variables may still be open."""
        match node:
            case tree.Literal():
                return _LITERALS[node.kind]
            case tree.Ident():
                return self._ident(node)
            case tree.Select():
                return self._select(node)
            case tree.Has():
                self._field(self.type_of(node.operand), node.field, node.place)
                return BOOL
            case tree.Index():
                given = (self.type_of(node.operand), self.type_of(node.key))
                return self._overload("_[?_]" if node.optional else "_[_]", given, node.place)
            case tree.Call():
                return self._call(node)
            case tree.Unary():
                return self._overload(
                    node.operator + "_", (self.type_of(node.operand),), node.place
                )
            case tree.Binary():
                given = (self.type_of(node.left), self.type_of(node.right))
                return self._overload(f"_{node.operator}_", given, node.place)
            case tree.Logical():
                return self._logical(node)
            case tree.Conditional():
                parts = (node.condition, node.then, node.otherwise)
                return self._overload("_?_:_", tuple(map(self.type_of, parts)), node.place)
            case tree.ListLiteral():
                return list_of(self._list_item(node))
            case tree.MapLiteral():
                return self._map(node)
            case tree.Message():
                raise self._undeclared(node.name, node.place, [])
            case tree.Macro():
                return self._macro(node)
            case tree.Bind():
                return self._within({node.variable: self.type_of(node.value)}, node.body)

    def _undeclared(self, name: str, place: Place, known: list[str]) -> CelTypeError:
        reason = f"undeclared reference to '{name}' (in container '')"
        return self.error(reason + nearest(name, known), place)

    def _ident(self, node: tree.Ident) -> Type:
        name = node.name.removeprefix(".")
        if name in self._scope:
            return self._scope[name]
        if name in types.TYPE_NAMES:
            return types.TYPE_NAMES[name]
        raise self._undeclared(name, node.place, [*self._scope, *types.TYPE_NAMES])

    def _select(self, node: tree.Select) -> Type:
        operand = self.resolved_once(self.type_of(node.operand))
        is_optional = operand.name == "optional_type" and bool(operand.parameters)
        result = self._field(operand, node.field, node.place)
        return optional_of(result) if node.optional or is_optional else result

    def resolved_once(self, found: Type) -> Type:
        """``found`` with what is known of it, open variables kept."""
        return self._known.resolve(found)

    def _field(self, operand: Type, field: str, place: Place) -> Type:
        operand = self.resolved_once(operand)
        if operand.name == "optional_type" and operand.parameters:
            operand = operand.parameters[0]
        if operand.name == "map":
            return operand.parameters[1]
        if operand == types.DEVICE:
            if field not in types.DEVICE_FIELDS:
                hint = nearest(field, list(types.DEVICE_FIELDS))
                raise self.error(f"undefined field '{field}'{hint}", place)
            return types.DEVICE_FIELDS[field]
        if operand.is_dynamic or operand.kind == "param":
            return DYN
        raise self.error(f"type '{operand}' does not support field selection", place)

    def _logical(self, node: tree.Logical) -> Type:
        for term in node.terms:
            self._condition(self.type_of(term), term.place)
        return BOOL

    def _overload(
        self, name: str, given: tuple[Type, ...], place: Place, *, method: bool = False
    ) -> Type:
        """The result of the overloads of ``name`` that fit; dyn where they disagree."""
        result: Type | None = None
        for overload in overloads(name):
            if overload.is_method != method or not types.may_fit(given, overload.parameters):
                continue
            fresh = {v: self._known.fresh() for v in overload.variables}
            wanted = tuple(
                types.instantiated(parameter, fresh) for parameter in overload.parameters
            )
            if self._known.assign(given, wanted):
                found = self._known.resolve(types.instantiated(overload.result, fresh))
                result = found if result in (None, found) else DYN
        if result is None:
            raise self._no_overload(name, given, place, method=method)
        return result

    def _no_overload(
        self, name: str, given: Sequence[Type], place: Place, *, method: bool
    ) -> CelTypeError:
        shown = [str(self.resolved(t)) for t in given]
        text = ", ".join(shown[1:] if method else shown)
        applied = f"{shown[0]}.({text})" if method else f"({text})"
        return self.error(f"found no matching overload for '{name}' applied to '{applied}'", place)

    def _call(self, node: tree.Call) -> Type:
        name, arguments = node.function.removeprefix("."), node.arguments
        qualified = self._qualified(node)
        if qualified is None and node.target is not None:
            self._declared(name, node.place)
            given = (self.type_of(node.target), *map(self.type_of, arguments))
            result = self._overload(name, given, node.place, method=True)
        else:
            self._declared(qualified or name, node.place)
            result = self._overload(
                qualified or name, tuple(map(self.type_of, arguments)), node.place
            )
        if name in _REGULAR and arguments:
            self._pattern(arguments[-1 if node.target is None else 0])
        return result

    def _qualified(self, node: tree.Call) -> str | None:
        """The name of a function in a namespace, such as ``optional.of``."""
        if not isinstance(node.target, tree.Ident) or node.target.name in self._scope:
            return None
        name = f"{node.target.name.removeprefix('.')}.{node.function}"
        return name if overloads(name) or name in UNSUPPORTED else None

    def _declared(self, name: str, place: Place) -> None:
        lacks_engine = name in _REGULAR and not is_installed()
        if overloads(name) and not lacks_engine:
            return
        if name in UNSUPPORTED or lacks_engine:
            raise CelUnsupportedError(name, self._source, place.line, place.column)
        raise self._undeclared(name, place, known_names())

    def _pattern(self, argument: Expr) -> None:
        """A pattern that is a literal is checked once, here."""
        if isinstance(argument, tree.Literal) and isinstance(argument.value, str):
            try:
                compiled(argument.value)
            except PatternError as error:
                raise self.error(f"invalid matches argument: {error}", argument.place) from None

    def _join(self, before: Type | None, found: Type, place: Place) -> Type:
        if before is None:
            return found
        if self._known.assign((before,), (found,)):
            return types.join(before, found)
        expected, seen = self.resolved(before), self.resolved(found)
        raise self.error(f"expected type '{expected}' but found '{seen}'", place)

    def check_homogeneous(self) -> None:
        """Refuse literals whose elements differ in type, also where one is dynamic.

        Raises:
            CelTypeError: the first such element.
        """
        for elements in self._aggregates:
            expected = self.resolved(elements[0][0])
            for found, place in elements:
                seen = self.resolved(found)
                if seen != expected:
                    raise self.error(f"expected type '{expected}' but found '{seen}'", place)

    def _joined(self, elements: list[tuple[Type, Place]]) -> Type:
        """The type of the elements of a literal, which must all be the same."""
        joined: Type | None = None
        for found, place in elements:
            joined = self._join(joined, found, place)
        if joined is None:
            return self._known.fresh()
        self._aggregates.append(elements)
        return joined

    def _list_item(self, node: tree.ListLiteral) -> Type:
        return self._joined([self._element(i.value, i.optional) for i in node.items])

    def _map(self, node: tree.MapLiteral) -> Type:
        keys = [(self.type_of(entry.key), entry.key.place) for entry in node.entries]
        values = [self._element(entry.value, entry.optional) for entry in node.entries]
        return map_of(self._joined(keys), self._joined(values))

    def _element(self, value: Expr, is_optional: bool) -> tuple[Type, Place]:
        return self._unwrapped(self.type_of(value), is_optional, value.place), value.place

    def _unwrapped(self, found: Type, is_optional: bool, place: Place) -> Type:
        if not is_optional:
            return found
        inner = self._known.fresh()
        fits = self._known.assign((found,), (optional_of(inner),))
        if not fits or self.resolved(found) == types.NULL:
            seen = self.resolved(found)
            raise self.error(f"expected type '{optional_of(seen)}' but found '{seen}'", place)
        return self._known.resolve(inner)

    def _macro(self, node: tree.Macro) -> Type:
        if node.name in ("optMap", "optFlatMap"):
            return self._optional_macro(node)
        key, value, item = self._elements(node)
        of_variables = (item,) if len(node.variables) == 1 else (key, value)
        scope = dict(zip(node.variables, of_variables, strict=True))
        results = [self._within(scope, argument) for argument in node.arguments]
        if len(results) == 2 or node.name in ("all", "exists", "exists_one", "existsOne", "filter"):
            self._condition(results[0], node.arguments[0].place)
        return macro_result(node.name, key, item, results[-1])

    def _condition(self, found: Type, place: Place) -> None:
        if not self._known.assign((found,), (BOOL,)):
            raise self.error(f"expected type 'bool' but found '{self.resolved(found)}'", place)

    def _elements(self, node: tree.Macro) -> tuple[Type, Type, Type]:
        found = self.resolved_once(self.type_of(node.operand))
        elements = types.elements_of(found)
        if elements is None:
            reason = f"expression of type '{found}' cannot be range of a comprehension"
            raise self.error(f"{reason} (must be list, map, or dynamic)", node.operand.place)
        return elements

    def _optional_macro(self, node: tree.Macro) -> Type:
        inner = self._known.fresh()
        found = self.type_of(node.operand)
        if not self._known.assign((found,), (optional_of(inner),)):
            raise self._no_overload("hasValue", (found,), node.place, method=True)
        result = self._within({node.variables[0]: self._known.resolve(inner)}, node.arguments[0])
        if node.name == "optMap":
            return optional_of(result)
        if not self._known.assign((result,), (optional_of(self._known.fresh()),)):
            raise self._no_overload(
                "_?_:_", (BOOL, result, optional_of(DYN)), node.place, method=False
            )
        return result

    def _within(self, names: dict[str, Type], body: Expr) -> Type:
        outer = self._scope
        self._scope = {**outer, **names}
        try:
            return self.type_of(body)
        finally:
            self._scope = outer
