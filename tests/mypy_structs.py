"""mypy's plugin against functions of dataclasses on msgspec Structs.

Structs are dataclasses to type checkers (``dataclass_transform``), and none at run time:
``dataclasses.replace`` on one is a TypeError that mypy by itself does not see.
"""

from collections.abc import Callable, Iterator

from mypy.plugin import FunctionContext, Plugin
from mypy.types import Instance, Type, TypeVarType, UnionType, get_proper_type

INSTEAD = {
    f"dataclasses.{name}": f"msgspec.structs.{name}"
    for name in ("replace", "asdict", "astuple", "fields")
}


class Structs(Plugin):
    """Says of each such call what is to be called instead."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Look at calls of these functions."""
        instead = INSTEAD.get(fullname)
        if instead is None:
            return None

        def look(context: FunctionContext) -> Type:
            given = context.arg_types[0][0] if context.arg_types[0] else None
            for name in _structs(given):
                context.api.fail(f"{name} is a msgspec Struct: use {instead}", context.context)
            return context.default_return_type

        return look


def _structs(given: Type | None) -> Iterator[str]:
    """Names of the Structs that a value may be of."""
    proper = None if given is None else get_proper_type(given)
    match proper:
        case UnionType(items=items):
            for item in items:
                yield from _structs(item)
        case TypeVarType(upper_bound=bound):
            yield from _structs(bound)
        case Instance(type=info) if info.has_base("msgspec.Struct"):
            yield info.name


def plugin(version: str) -> type[Plugin]:
    """What mypy asks for."""
    return Structs
