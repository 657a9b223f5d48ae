"""Which calls are macros, the form of their arguments, and their trees."""

from typing import Final

from dray.cel.source import SourceLocation
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr

_ONE_VARIABLE: Final = {
    ("all", 2), ("exists", 2), ("exists_one", 2), ("filter", 2), ("map", 2), ("map", 3),
    ("optMap", 2), ("optFlatMap", 2), ("sortBy", 2),
}  # fmt: skip
_TWO_VARIABLES: Final = {
    ("all", 3), ("exists", 3), ("exists_one", 3), ("existsOne", 3), ("transformList", 3),
    ("transformList", 4), ("transformMap", 3), ("transformMap", 4), ("transformMapEntry", 3),
    ("transformMapEntry", 4),
}  # fmt: skip


MACRO_NAMES: Final = frozenset(
    {"has", "bind"} | {name for name, _ in _ONE_VARIABLE} | {name for name, _ in _TWO_VARIABLES}
)
"""Functions whose calls may be macros."""


_NO_NAME: Final = {
    "bind": "cel.bind() variable names must be simple identifiers",
    "optMap": "optMap() variable name must be a simple identifier",
    "optFlatMap": "optFlatMap() variable name must be a simple identifier",
    **dict.fromkeys(("map", "filter", "sortBy"), "argument is not an identifier"),
}
_BINDING: Final = ("bind", "optMap", "optFlatMap")
_NO_LISTS: Final = (tree.Literal, tree.MapLiteral, tree.MessageLiteral)


class MacroError(ValueError):
    """A macro's argument has a wrong form."""

    def __init__(self, reason: str, place: SourceLocation) -> None:
        super().__init__(reason)
        self.place = place


def expand(call: tree.Call) -> Expr:
    """The macro for ``call``, or ``call`` itself if it is no macro.

    Raises:
        MacroError: a variable is not a simple name, or ``has`` has no field.
    """
    target, count = call.target, len(call.arguments)
    if target is None:
        return _has(call) if call.function == "has" and count == 1 else call
    if call.function == "bind" and count == 3 and _is_cel(target):
        variable = _simple_name(call.arguments[0], "bind")
        return tree.Bind(variable, call.arguments[1], call.arguments[2], place=call.place)
    if (call.function, count) in _ONE_VARIABLE:
        return _macro(call, target, 1)
    if (call.function, count) in _TWO_VARIABLES:
        return _macro(call, target, 2)
    return call


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
    if call.function == "sortBy" and isinstance(target, _NO_LISTS):
        reason = "sortBy can only be applied to a list, identifier, comprehension, call or select "
        raise MacroError(reason + "expression", target.place)
    given = call.arguments[:variables]
    names = tuple(_simple_name(argument, call.function) for argument in given)
    rest = call.arguments[variables:]
    if len(set(names)) < len(names):
        raise MacroError(f"duplicate variable name: {names[0]}", call.arguments[1].place)
    return tree.Macro(call.function, target, names, rest, place=call.place)


def _simple_name(argument: Expr, macro: str) -> str:
    """The name of a macro's variable. Another argument is refused in cel-go's words."""
    if not isinstance(argument, tree.Ident):
        raise MacroError(_NO_NAME.get(macro, "argument must be a simple name"), argument.place)
    if argument.name == "__result__" and macro not in _BINDING:
        raise MacroError("iteration variable overwrites accumulator variable", argument.place)
    return argument.name
