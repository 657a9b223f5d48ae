"""How many steps of work a function takes on given values, computed before it is called."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from dray.cel.library.patterns import program_size
from dray.cel.library.values import Optional
from dray.cel.limits import WORK_LIMIT

_CHARACTERS: Final = 10
_CONTAINER: Final = 4
_REGULAR: Final = 240
"""Steps for a call of the regular expression engine."""
_MATCHED: Final = 12
"""Instructions of a pattern's program that the engine executes per step, for one character."""
_COMPILED: Final = 96
"""Compiling a pattern costs as much as matching this many characters."""
_FOUND: Final = 80
"""Steps for one match of ``findAll``."""
MOST_FOUND: Final = WORK_LIMIT // _FOUND
"""Maximum number of matches of one ``findAll``."""
_COMPARED: Final = 5
"""Steps for comparing two elements."""
_SHOWN: Final = 12
"""Steps for an element as text."""
_PARSED: Final = 4
"""Steps for ten characters of a URL."""
_EXACT: Final = 2.0**53


HOLDING: Final = (list, dict, Optional)
"""Types of values that hold other values."""


def weight(value: Any) -> int:
    """Steps for walking over a value and everything in it; counting stops at ``WORK_LIMIT``.

    A list may contain another list twice, so a short expression can make a list of 2⁶⁰ elements.
    """
    if isinstance(value, (str, bytes)):
        return len(value) // _CHARACTERS
    if not isinstance(value, HOLDING):
        return 0
    found, ahead = 0, [value]
    while ahead and found <= WORK_LIMIT:
        held = _held(ahead.pop())
        found += len(held) + _CONTAINER
        for item in held:
            if isinstance(item, HOLDING):
                ahead.append(item)
            elif isinstance(item, (str, bytes)):
                found += len(item) // _CHARACTERS
    return found


def _held(value: Any) -> Collection[Any]:
    if isinstance(value, Optional):
        return (value.value,)
    return value.values() if isinstance(value, dict) else value


def steps_to_compare(left: Any, right: Any) -> int:
    """Steps to account for before two values that contain other values are compared."""
    return min(weight(left), weight(right)) * _COMPARED


def steps_of(function: str, values: Sequence[Any]) -> int:
    """Steps to account for before a function is called on ``values``."""
    special = _SPECIAL.get(function)
    if special is not None:
        return special(values)
    return sum(map(weight, values))


def _range(values: Sequence[Any]) -> int:
    return max(0, values[0]) // 2 if type(values[0]) is int else 0


def _replace(values: Sequence[Any]) -> int:
    """The length of the result, without making it."""
    if not all(isinstance(text, str) for text in values[:3]):
        return 0
    text, old, new = values[:3]
    count: int = text.count(old)
    if len(values) == 4 and type(values[3]) is int and values[3] >= 0:
        count = min(count, values[3])
    return (len(text) + count * len(new)) // _CHARACTERS


def _join(values: Sequence[Any]) -> int:
    separator = values[1] if len(values) == 2 else ""
    if not isinstance(values[0], list) or not isinstance(separator, str):
        return 0
    return weight(values[0]) + len(values[0]) * len(separator) // _CHARACTERS


def _is_short(item: Any) -> bool:
    return isinstance(item, (str, int)) or (isinstance(item, float) and abs(item) < _EXACT)


def _pairs(values: Sequence[Any]) -> int:
    """Steps for comparing each element of the last list with each of the first; fewer if scalar."""
    if not isinstance(values[-1], list) or not isinstance(values[0], list):
        return 0
    if all(_is_short(item) for items in values for item in items):
        return sum(map(weight, values))
    return (weight(values[0]) + 1) * (len(values[-1]) + 1) * 5


def _ordered(values: Sequence[Any]) -> int:
    items = values[-1]
    return (
        (weight(items) + len(items) * len(items).bit_length() * 10)
        if isinstance(items, list)
        else 0
    )


def _elements(values: Sequence[Any]) -> int:
    return len(values[0]) if isinstance(values[0], (str, list)) else 0


def _searched(values: Sequence[Any]) -> int:
    return weight(values[1]) if isinstance(values[1], list) else 0


def _shown(values: Sequence[Any]) -> int:
    return weight(values[0]) + weight(values[-1]) * _SHOWN


def _parsed(values: Sequence[Any]) -> int:
    return weight(values[0]) * _PARSED


def _matched(values: Sequence[Any]) -> int:
    """RE2 is fast, but with a large automaton it walks the whole pattern for each character.

    The pattern itself counts, too: a pattern made during evaluation has to be compiled.
    """
    text, pattern = values[:2]
    if not isinstance(text, str) or not isinstance(pattern, str):
        return _REGULAR
    return _REGULAR + (len(text) + _COMPILED) * program_size(pattern) // _MATCHED


_SPECIAL: Final = {
    **dict.fromkeys(("matches", "find", "findAll"), _matched),
    "@in": _searched,
    "lists.range": _range,
    "replace": _replace,
    "join": _join,
    "split": _elements,
    "distinct": _pairs,
    "sets.contains": _pairs,
    "sets.equivalent": lambda values: _pairs(values) + _pairs(values[::-1]),
    "sets.intersects": _pairs,
    "format": _shown,
    **dict.fromkeys(("url", "isURL"), _parsed),
    "sort": _ordered,
    "@sortByAssociatedKeys": _ordered,
}
GROWING: Final = frozenset((
    *_SPECIAL, "strings.quote", "slice", "flatten", "reverse", "sum",
    "min", "max", "isSorted", "lowerAscii", "upperAscii", "trim", "indexOf",
    "lastIndexOf", "includes", "optional.unwrap", "unwrapOpt", "string", "bytes", "substring",
    "validate", "startsWith", "endsWith", "contains", "getQuery", "_+_",
))  # fmt: skip
"""Functions whose work or result grows with their arguments."""
MADE: Final = {"findAll": _FOUND}
"""Steps for each element of a function's result. Its size is known only after the call."""
