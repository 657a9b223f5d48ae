"""What Kubernetes refuses of literals after the types fit: cel-go's validators.

Durations, timestamps and patterns that are literals, calls of ``format`` on a literal, and
lists and maps whose elements differ in type, also where one of them is dynamic.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from dray.cel import tree
from dray.cel.errors import CelUnsupportedError, Refusal, all_of
from dray.cel.formats import check_format
from dray.cel.tree import Expr, Place
from dray.cel.types import Type

if TYPE_CHECKING:
    from dray.cel.check import Checked

Elements = list[tuple[Type, Place]]
_PATTERNS: Final = ("matches", "find", "findAll")


class Literals:
    """The calls, keys and aggregate literals met; ``exempt`` > 0 inside ``format``."""

    __slots__ = ("calls", "exempt", "keys", "lists", "maps", "variables")

    def __init__(self) -> None:
        self.calls: list[tree.Call] = []
        self.keys: list[Expr] = []
        """Of indexes, but for the plain strings and ints."""
        self.variables: list[tree.Ident] = []
        """Uses of variables that may hold a type."""
        self.lists: list[Elements] = []
        self.maps: list[Elements] = []
        """The keys of one, or its values."""
        self.exempt = 0

    @property
    def any(self) -> bool:
        """Whether there is anything to validate."""
        return bool(self.calls or self.lists or self.maps)

    def add_list(self, elements: Elements) -> None:
        """Elements that must have one type."""
        if len(elements) > 1 and not self.exempt:
            self.lists.append(elements)

    def add_map(self, keys: Elements, values: Elements) -> None:
        """Keys that must have one type, and values that must."""
        if len(keys) > 1 and not self.exempt:
            self.maps += (keys, values)


def validate(checked: "Checked", literals: Literals) -> None:
    """Refuse bad literals.

    Raises:
        CelTypeError: the first of them, with the others.
        CelUnsupportedError: a function of patterns, where no RE2 is installed.
    """
    for call in literals.calls:
        _demand_engine(call)
    refused = [refusal for call in literals.calls for refusal in _in_call(checked, call)]
    for elements in literals.lists:
        refused += itertools.islice(_mixed(checked, elements), 1)  # as Kubernetes does, oddly
    for elements in literals.maps:
        refused += _mixed(checked, elements)
    if refused:
        raise all_of(refused, checked.source)


def _demand_engine(call: tree.Call) -> None:
    """Without an RE2, patterns are refused rather than guessed at."""
    if call.function not in _PATTERNS:
        return
    from dray.cel.patterns import is_installed

    if not is_installed():
        place = call.place
        raise CelUnsupportedError(call.function, place.text, place.line, place.column)


def _in_call(checked: "Checked", call: tree.Call) -> Iterator[Refusal]:
    valid = _VALID.get(call.function)
    if valid is not None and call.arguments:
        argument = call.arguments[0]
        if isinstance(argument, tree.Literal) and not valid(argument):
            yield Refusal(f"invalid {call.function} argument", argument.place)
    if call.function == "format" and call.target is not None:
        refusal = check_format(checked, call)
        if refusal is not None:
            yield refusal


def _mixed(checked: "Checked", elements: Elements) -> Iterator[Refusal]:
    """The elements of another type than the first has."""
    expected = checked.closed(elements[0][0])
    for found, place in elements:
        seen = checked.closed(found)
        if seen is not expected:
            yield Refusal(f"expected type '{expected}' but found '{seen}'", place)


def _is_duration(argument: tree.Literal) -> bool:
    from dray.cel.times import TimeError, parse_duration

    try:
        return isinstance(argument.value, str) and bool(parse_duration(argument.value))
    except TimeError:
        return False


def _is_timestamp(argument: tree.Literal) -> bool:
    from dray.cel.times import TimeError, moment, parse_timestamp

    try:
        if isinstance(argument.value, str):
            return bool(parse_timestamp(argument.value))
        return not isinstance(argument.value, int) or bool(moment(argument.value * 10**9))
    except TimeError:
        return False


def _is_pattern(argument: tree.Literal) -> bool:
    """cel-go looks at the first argument, which for ``matches(text, pattern)`` is the text."""
    from dray.cel.patterns import PatternError, compiled

    try:
        return not isinstance(argument.value, str) or bool(compiled(argument.value))
    except PatternError:
        return False


_VALID: Final[dict[str, Callable[[tree.Literal], bool]]] = {
    "duration": _is_duration,
    "timestamp": _is_timestamp,
    "matches": _is_pattern,
}
