"""Checks of arguments at run time, if the types chose the overload. They follow cel-go's dispatch.

The static types can be wrong because of a dynamic list, or of an open type that the first overload
fixed. Only the first element of a list or map is checked.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from dray.api.quantities import Quantity
from dray.cel.library.network import Cidr, Ip
from dray.cel.library.semver import Semver
from dray.cel.library.times import Duration, Timestamp
from dray.cel.library.values import Optional, Uint, Value, from_key, no_overload
from dray.cel.types.signatures import overloads
from dray.cel.types.types import Type

_KINDS: Final[dict[str, type]] = {
    "bool": bool, "int": int, "uint": Uint, "double": float, "string": str, "bytes": bytes,
    "list": list, "map": dict, "google.protobuf.Duration": Duration,
    "google.protobuf.Timestamp": Timestamp, "optional_type": Optional, "net.IP": Ip,
    "net.CIDR": Cidr, "kubernetes.Quantity": Quantity, "kubernetes.Semver": Semver,
}  # fmt: skip
_UNGUARDED: Final = frozenset(
    ("size", "matches", "sort", "type", "dyn", "flatten", "compareTo", "isGreaterThan",
     "isLessThan")
)  # fmt: skip
"""Functions that upstream calls with any types, or that check the types themselves."""


def guarded(name: str, overload: str, function: Callable[..., Value]) -> Callable[..., Value]:
    """``function``, but it refuses arguments that the overload does not accept."""
    parameters = _parameters(name, overload)
    if not parameters:
        return function

    def call(*values: Value) -> Value:
        if not all(map(_fits, parameters, values)):
            raise no_overload(name, *values)
        return function(*values)

    return call


@lru_cache(maxsize=256)
def _parameters(name: str, overload: str) -> Sequence[Type]:
    """The parameters to check. Empty if the function has only one form and checks itself."""
    forms = overloads(name)
    if len(forms) < 2 or name in _UNGUARDED:
        return ()
    return next((form.parameters for form in forms if form.name == overload), ())


def _fits(wanted: Type, value: Value) -> bool:
    kind = _KINDS.get(wanted.name)
    if kind is None:
        return True
    if kind is list:
        return type(value) is list and (not value or _fits(wanted.parameters[0], value[0]))
    if kind is dict:
        return isinstance(value, dict) and _first_fits(wanted, value)
    return type(value) is kind or (kind is Quantity and isinstance(value, Quantity))


def _first_fits(wanted: Type, value: dict[Value, Value]) -> bool:
    for key, item in value.items():
        return _fits(wanted.parameters[0], from_key(key)) and _fits(wanted.parameters[1], item)
    return True
