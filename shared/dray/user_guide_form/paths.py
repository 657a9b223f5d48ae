"""Trees that read one attribute or capacity of a device, in the DRA dialect."""

from dray.api.names import DRIVER
from dray.cel.source import NOWHERE, SourceLocation
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr


def attribute(name: str, place: SourceLocation = NOWHERE) -> Expr:
    """``device.attributes["<driver>"].name``."""
    return _member("attributes", name, place)


def capacity(name: str, place: SourceLocation = NOWHERE) -> Expr:
    """``device.capacity["<driver>"].name``."""
    return _member("capacity", name, place)


def has(read: Expr) -> Expr:
    """``has(x.name)`` for the tree of ``x.name``."""
    if not isinstance(read, tree.Select):
        raise TypeError(f"{type(read).__name__} is not a field selection")
    return tree.Has(read.operand, read.field, place=read.place)


def text(value: str) -> Expr:
    """A string literal."""
    return tree.Literal("string", value)


def whole(value: int) -> Expr:
    """An int literal."""
    return tree.Literal("int", value)


def quantity(value: Expr) -> Expr:
    """``quantity(value)``."""
    return tree.Call("quantity", (value,), place=value.place)


def domain(field: str, place: SourceLocation = NOWHERE) -> Expr:
    """``device.attributes["<driver>"]`` or ``device.capacity["<driver>"]``."""
    device = tree.Ident("device", place=place)
    fields = tree.Select(device, field, place=place)
    return tree.Index(fields, tree.Literal("string", DRIVER, place=place), place=place)


def _member(field: str, name: str, place: SourceLocation) -> Expr:
    return tree.Select(domain(field, place), name, place=place)
