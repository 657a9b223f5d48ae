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
    from dray.cel.values import Value

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
    folder = _Folder()
    # Inner calls stand behind outer ones, so that no call is computed twice.
    found = [refusal for call in reversed(literals.calls) for refusal in folder.of(call)]
    return found + [refusal for key in literals.keys for refusal in _in_key(key)]


class _Folder:
    """Computes conversions from the inside, each once."""

    def __init__(self) -> None:
        self._values: dict[int, Value] = {}
        self._unknown: set[int] = set()

    def of(self, call: tree.Call) -> Iterator[Refusal]:
        name = call.function.removeprefix(".")
        try:
            if name in _PATTERNS and len(call.arguments) > (call.target is None):
                _compile(call.arguments[call.target is None])
            elif name in _CONVERSIONS and call.target is None and len(call.arguments) == 1:
                self._convert(name, call)
        except CelEvaluationError as error:
            yield Refusal(f"{_FAILED}{error}", call.place)

    def _convert(self, name: str, call: tree.Call) -> None:
        from dray.cel.folding import Unknown, constant
        from dray.cel.functions import FUNCTIONS

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
