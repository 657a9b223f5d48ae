"""What Kubernetes computes when it makes a program: conversions of constants, their patterns.

What fails then is refused at admission, before any device is looked at.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from dray.cel import tree
from dray.cel.errors import CelEvaluationError, Refusal
from dray.cel.tree import Expr

if TYPE_CHECKING:
    from dray.cel.validation import Literals

_CONVERSIONS: Final = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint")
)
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


def refused_constants(literals: "Literals") -> list[Refusal]:
    """What would fail on every device, such as ``uint(-1)`` or ``x.matches('[')``."""
    found = [refusal for call in literals.calls for refusal in _in_call(call)]
    return found + [refusal for key in literals.keys for refusal in _in_key(key)]


def _in_call(call: tree.Call) -> Iterator[Refusal]:
    name = call.function.removeprefix(".")
    if name not in _CONVERSIONS and name not in _PATTERNS:
        return
    at = 1 if name in _PATTERNS and call.target is None else 0
    if len(call.arguments) <= at or (name in _CONVERSIONS and call.target is not None):
        return
    try:
        if name in _PATTERNS:
            _compile(call.arguments[at])
        else:
            _convert(name, call.arguments[at])
    except CelEvaluationError as error:
        yield Refusal(f"{_FAILED}{error}", call.place)


def _convert(name: str, argument: Expr) -> None:
    from dray.cel.folding import Unknown, constant
    from dray.cel.functions import FUNCTIONS

    try:
        FUNCTIONS[name](constant(argument))
    except Unknown:
        return


def _compile(argument: Expr) -> None:
    from dray.cel.folding import Unknown, constant
    from dray.cel.patterns import PatternError, compiled

    try:
        pattern = constant(argument)
        if isinstance(pattern, str):
            compiled(pattern)
    except Unknown:
        return
    except PatternError as error:
        raise CelEvaluationError(str(error)) from None


def _in_key(key: Expr) -> Iterator[Refusal]:
    """A constant by which nothing can be indexed."""
    from dray.cel.folding import Unknown, constant

    try:
        kind = type(constant(key)).__name__
    except Unknown:
        return
    if kind not in _KEYS:
        reason = f"{_FAILED}invalid qualifier type: {_GO_TYPES.get(kind, kind)}"
        yield Refusal(reason, key.place)
