"""What Kubernetes refuses in an expression although its types fit.

cel-go's validators refuse bad literals: durations, timestamps and patterns, calls of ``format`` on
a literal, and lists and maps whose elements differ in type, even if one element is dynamic. When
cel-go makes a program, it converts constants and compiles constant patterns. If that fails, the
expression is refused at admission, before any device is examined.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Final

from dray.cel.check.check_result import CheckedExpr, Elements, Literals
from dray.cel.check.constants import CONVERSIONS, Unknown, constant
from dray.cel.errors import CelEvaluationError, CelUnsupportedError, CompileIssue, all_of
from dray.cel.library.functions import FUNCTIONS
from dray.cel.library.patterns import PatternError, compiled, is_installed
from dray.cel.library.times import TimeError, moment, parse_duration, parse_timestamp
from dray.cel.library.values import Value
from dray.cel.source import SourceLocation
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr

_PATTERNS: Final = frozenset(("matches", "find", "findAll"))
_FAILED: Final = "program instantiation failed: "
_KEYS: Final = frozenset(("str", "bool", "int", "Uint", "float"))
_GO_TYPES: Final = {
    "bytes": "types.Bytes",
    "NoneType": "types.Null",
    "list": "*types.baseList",
    "dict": "*types.baseMap",
    "Duration": "types.Duration",
    "Timestamp": "types.Timestamp",
    "TypeValue": "*types.Type",
}


def validate(checked: CheckedExpr, literals: Literals) -> None:
    """Refuse bad literals.

    Raises:
        CelTypeError: the first of them, with the others.
        CelUnsupportedError: the expression uses patterns, and no RE2 is installed.
    """
    for call in literals.calls:
        _demand_engine(call)
    refused = [issue for call in literals.calls for issue in _in_call(checked, call)]
    for elements in literals.lists:
        refused += itertools.islice(_mixed(checked, elements), 1)  # Kubernetes oddly does the same
    for elements in literals.maps:
        refused += _mixed(checked, elements)
    if refused:
        raise all_of(refused, checked.source)


def _demand_engine(call: tree.Call) -> None:
    """Refuse patterns if no RE2 is installed, instead of guessing their meaning."""
    if call.function not in _PATTERNS:
        return
    if not is_installed():
        place = call.place
        raise CelUnsupportedError(call.function, place.text, place.line, place.column)


def _in_call(checked: CheckedExpr, call: tree.Call) -> Iterator[CompileIssue]:
    valid = _VALID.get(call.function)
    if valid is not None and call.arguments:
        argument = call.arguments[0]
        if isinstance(argument, tree.Literal) and not valid(argument):
            yield CompileIssue(f"invalid {call.function} argument", argument.place)
    if call.function == "format" and call.target is not None:
        issue = _check_format(checked, call)
        if issue is not None:
            yield issue


def _mixed(checked: CheckedExpr, elements: Elements) -> Iterator[CompileIssue]:
    """The elements whose type differs from the first one's."""
    expected = checked.closed(elements[0][0])
    for found, place in elements:
        seen = checked.closed(found)
        if seen is not expected:
            yield CompileIssue(f"expected type '{expected}' but found '{seen}'", place)


def _is_duration(argument: tree.Literal) -> bool:
    try:
        return isinstance(argument.value, str) and bool(parse_duration(argument.value))
    except TimeError:
        return False


def _is_timestamp(argument: tree.Literal) -> bool:
    try:
        if isinstance(argument.value, str):
            return bool(parse_timestamp(argument.value))
        return not isinstance(argument.value, int) or bool(moment(argument.value * 10**9))
    except TimeError:
        return False


def _is_pattern(argument: tree.Literal) -> bool:
    """cel-go checks the first argument. For ``matches(text, pattern)`` that is the text."""
    try:
        return not isinstance(argument.value, str) or bool(compiled(argument.value))
    except PatternError:
        return False


_VALID: Final[dict[str, Callable[[tree.Literal], bool]]] = {
    "duration": _is_duration,
    "timestamp": _is_timestamp,
    "matches": _is_pattern,
}


def refused_constants(literals: Literals) -> list[CompileIssue]:
    """Expressions that would fail on every device, such as ``uint(-1)`` or ``x.matches('[')``."""
    folder = _Folder()
    # Inner calls come after outer ones in the list. In reverse order, no call is computed twice.
    found = [issue for call in reversed(literals.calls) for issue in folder.of(call)]
    return found + [issue for key in literals.keys for issue in _in_key(key)]


class _Folder:
    """Computes each conversion once, inner ones first."""

    def __init__(self) -> None:
        self._values: dict[int, Value] = {}
        self._unknown: set[int] = set()

    def of(self, call: tree.Call) -> Iterator[CompileIssue]:
        name = call.function.removeprefix(".")
        try:
            if name in _PATTERNS and len(call.arguments) > (call.target is None):
                _compile(call.arguments[call.target is None])
            elif name in CONVERSIONS and call.target is None and len(call.arguments) == 1:
                self._convert(name, call)
        except CelEvaluationError as error:
            yield CompileIssue(f"{_FAILED}{error}", call.place)

    def _convert(self, name: str, call: tree.Call) -> None:

        argument = call.arguments[0]
        if id(argument) in self._unknown:
            self._unknown.add(id(call))
            return
        try:
            known = id(argument) in self._values
            value = self._values[id(argument)] if known else constant(argument)
        except Unknown:
            self._unknown.add(id(call))
            return
        self._unknown.add(id(call))
        self._values[id(call)] = FUNCTIONS[name](value)
        self._unknown.discard(id(call))


def _compile(argument: Expr) -> None:
    try:
        pattern = constant(argument)
        if isinstance(pattern, str):
            compiled(pattern)
    except Unknown:
        return
    except PatternError as error:
        raise CelEvaluationError(str(error)) from None


def _in_key(key: Expr) -> Iterator[CompileIssue]:
    """A constant that can't be a key or an index."""
    try:
        kind = type(constant(key)).__name__
    except Unknown:
        return
    if kind not in _KEYS:
        reason = f"{_FAILED}invalid qualifier type: {_GO_TYPES.get(kind, kind)}"
        yield CompileIssue(reason, key.place)


_CLAUSE: Final = re.compile(r"%(?:%|(\.[0-9]*)?([\s\S])?)")
_UNPARSED: Final = "could not parse formatting clause"
_KINDS: Final = {
    "d": ("int", "uint"),
    "f": ("double", "string"),
    "e": ("double", "string"),
    "b": ("int", "uint", "bool"),
    "o": ("int", "uint"),
    "x": ("int", "uint", "string", "bytes"),
    "s": (
        "list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes",
        "duration", "type", "null",
    ),
}  # fmt: skip
_MEANT_FOR: Final = {
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "o": "octal clause can only be used on integers",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
    "types, durations, and timestamps",
}


def _check_format(checked: CheckedExpr, call: tree.Call) -> CompileIssue | None:
    """The error in a format whose text and list of arguments are both literals."""
    target, values = call.target, call.arguments[0]
    if not (isinstance(target, tree.Literal) and isinstance(target.value, str)):
        return None
    if not isinstance(values, tree.ListLiteral):
        return None
    arguments = [item.value for item in values.items]
    used = 0
    for match in _CLAUSE.finditer(target.value):
        if match.group() != "%%":
            issue = _in_clause(checked, match, arguments, used, call.place)
            if issue is not None:
                return issue
            used += 1
    if len(arguments) <= used:
        return None
    reason = "too many arguments supplied to string.format "
    return CompileIssue(reason + f"(expected {used}, got {len(arguments)})", call.place)


def _in_clause(
    checked: CheckedExpr,
    clause: re.Match[str],
    arguments: list[Expr],
    at: int,
    place: SourceLocation,
) -> CompileIssue | None:
    precision, verb = clause.groups()
    if verb is None and precision is None:
        return CompileIssue("unexpected end of string", place)
    if at >= len(arguments):
        return CompileIssue(f"index {at} out of range", place)
    if precision == "." or verb is None:
        why = "could not find end of precision specifier"
        if verb is not None:
            why = 'error while converting precision to integer: strconv.Atoi: parsing "": '
            why += "invalid syntax"
        return CompileIssue(f"{_UNPARSED}: error while parsing precision: {why}", place)
    kind = verb.lower() if verb == "X" else verb
    if kind not in _KINDS:
        return CompileIssue(f'{_UNPARSED}: unrecognized formatting clause "{verb}"', place)
    bad = _unfit(checked, arguments[at], _KINDS[kind], deep=kind == "s")
    if bad is None:
        return None
    given = checked.type_of(bad).name
    return CompileIssue(
        f"error during formatting: {_MEANT_FOR[kind]}, was given {given}", bad.place
    )


def _unfit(checked: CheckedExpr, node: Expr, kinds: tuple[str, ...], *, deep: bool) -> Expr | None:
    """The node, or a node inside it, whose type the clause can't format."""
    found = checked.type_of(node)
    if found.kind != "dyn" and found.kind not in kinds:
        return node
    if not deep:
        return None
    inside: tuple[Expr, ...] = ()
    if isinstance(node, tree.ListLiteral | tree.MapLiteral):
        inside = tree.children(node)
    wrong = (_unfit(checked, child, kinds, deep=True) for child in inside)
    return next((child for child in wrong if child is not None), None)
