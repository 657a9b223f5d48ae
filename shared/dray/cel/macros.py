"""Which calls are macros, what their arguments must look like, and what they give."""

from typing import Final

from dray.cel import tree
from dray.cel.tree import Expr, Place
from dray.cel.types import BOOL, Type, list_of, map_of

_ONE_VARIABLE: Final = {
    ("all", 2), ("exists", 2), ("exists_one", 2), ("filter", 2), ("map", 2), ("map", 3),
    ("optMap", 2), ("optFlatMap", 2),
}  # fmt: skip
_TWO_VARIABLES: Final = {
    ("all", 3), ("exists", 3), ("exists_one", 3), ("existsOne", 3), ("transformList", 3),
    ("transformList", 4), ("transformMap", 3), ("transformMap", 4), ("transformMapEntry", 3),
    ("transformMapEntry", 4),
}  # fmt: skip


class MacroError(ValueError):
    """A macro's argument has a wrong form."""

    def __init__(self, reason: str, place: Place) -> None:
        super().__init__(reason)
        self.place = place


def expand(call: tree.Call) -> Expr:
    """The macro that ``call`` is, or ``call`` itself.

    Raises:
        MacroError: a variable that is not a simple name, or ``has`` without a field.
    """
    target, count = call.target, len(call.arguments)
    if target is None:
        return _has(call) if call.function == "has" and count == 1 else call
    if call.function == "bind" and count == 3 and _is_cel(target):
        variable = _simple_name(call.arguments[0])
        return tree.Bind(variable, call.arguments[1], call.arguments[2], place=call.place)
    if (call.function, count) in _ONE_VARIABLE:
        return _macro(call, target, 1)
    if (call.function, count) in _TWO_VARIABLES:
        return _macro(call, target, 2)
    return call


def macro_result(name: str, key: Type, item: Type, result: Type) -> Type:
    """The type of a macro over ``key`` and ``item`` whose last argument gives ``result``."""
    match name:
        case "map" | "transformList":
            return list_of(result)
        case "filter":
            return list_of(item)
        case "transformMap":
            return map_of(key, result)
        case "transformMapEntry":
            return result
        case _:
            return BOOL


def _is_cel(target: Expr) -> bool:
    return isinstance(target, tree.Ident) and target.name == "cel"


def _has(call: tree.Call) -> Expr:
    argument = call.arguments[0]
    if isinstance(argument, tree.Has):
        return argument
    if not isinstance(argument, tree.Select) or argument.optional:
        raise MacroError("invalid argument to has() macro", argument.place)
    return tree.Has(argument.operand, argument.field, place=call.place)


def _macro(call: tree.Call, target: Expr, variables: int) -> Expr:
    names = tuple(_simple_name(argument) for argument in call.arguments[:variables])
    rest = call.arguments[variables:]
    if len(set(names)) < len(names):
        raise MacroError(f"duplicate variable name: {names[0]}", call.arguments[1].place)
    return tree.Macro(call.function, target, names, rest, place=call.place)


def _simple_name(argument: Expr) -> str:
    if not isinstance(argument, tree.Ident) or argument.name.startswith("."):
        raise MacroError("argument must be a simple name", argument.place)
    if argument.name == "__result__":
        raise MacroError("iteration variable overwrites accumulator variable", argument.place)
    return argument.name
