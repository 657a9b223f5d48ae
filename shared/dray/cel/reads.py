"""The paths of a device that an expression reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dray.cel.library.values import Value
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr
from dray.cel.syntax.unparser import unparse
from dray.cel.view import DeviceView

Names = Mapping[str, Expr]
"""The expressions for which the variables in scope stand."""
OWN_DOMAIN: Final = "\0driver"
"""Placeholder for a domain: the device's driver."""


@dataclass(frozen=True, slots=True)
class Read:
    """One fact of the device: only ``field``, or ``field`` with domain and name."""

    field: str
    domain: str = ""
    name: str = ""
    text: str = ""
    """The read as an expression."""

    def value(self, device: DeviceView) -> Value | None:
        """The value on ``device``, or None if it is absent."""
        match self.field:
            case "driver":
                return device.driver
            case "allowMultipleAllocations":
                return device.allow_multiple_allocations
            case "attributes":
                return device.attributes_by_domain.get(self._domain_of(device), {}).get(self.name)
            case _:
                return device.capacity_by_domain.get(self._domain_of(device), {}).get(self.name)

    def _domain_of(self, device: DeviceView) -> str:
        return device.driver if self.domain == OWN_DOMAIN else self.domain


def reads_of(root: Expr) -> tuple[Read, ...]:
    """The facts that ``root`` names by a literal domain and name, each once, in order."""
    found: dict[tuple[str, str, str], Read] = {}
    for node in _walk(root):
        read = read_of(node)
        if read is not None:
            found.setdefault((read.field, read.domain, read.name), read)
    return tuple(found.values())


def shown_reads(root: Expr) -> tuple[Read, ...]:
    """The reads to show with a clause. They include reads in a presence test, reads through a
    variable for a part of the device, and reads with ``device.driver`` as the domain.
    """
    found: dict[str, Read] = {}
    ahead: list[tuple[Expr, Names]] = [(root, {})]
    while ahead:
        node, names = ahead.pop()
        whole = _whole(node, names)
        read = fact_of(whole) or _presence(whole)
        if read is not None:
            found.setdefault(read.text, read)
        ahead.extend(reversed(_inner(node, names)))
    return tuple(found.values())


def fact_of(node: Expr) -> Read | None:
    """As ``read_of``, but also for names in the domain ``device.driver``."""
    return read_of(node) or _of_own_domain(node)


def _inner(node: Expr, names: Names) -> list[tuple[Expr, Names]]:
    """The nodes directly below a node, with the meaning of the variables there."""
    match node:
        case tree.Bind():
            inner = {**names, node.variable: _whole(node.value, names)}
            return [(node.value, names), (node.body, inner)]
        case tree.Macro():
            inner = {name: part for name, part in names.items() if name not in node.variables}
            return [(node.operand, names), *((part, inner) for part in node.arguments)]
        case _:
            return [(child, names) for child in tree.children(node)]


def _whole(node: Expr, names: Names) -> Expr:
    """``node`` with the variables at the beginning of its path replaced."""
    match node:
        case tree.Ident():
            return names.get(node.name, node)
        case tree.Select() | tree.Has() | tree.Index():
            return tree.replace(node, operand=_whole(node.operand, names))
        case tree.Binary(operator="in"):
            return tree.replace(node, right=_whole(node.right, names))
        case _:
            return node


def _presence(node: Expr) -> Read | None:
    match node:
        case tree.Binary(operator="in", left=tree.Literal(value=str() as name), right=right):
            return read_of(tree.Select(right, name))
        case _:
            return None


def _of_own_domain(node: Expr) -> Read | None:
    """``device.attributes[device.driver].name``."""
    match node:
        case tree.Select(
            operand=tree.Index(
                operand=tree.Select(operand=tree.Ident(name="device"), field=field),
                key=tree.Select(operand=tree.Ident(name="device"), field="driver"),
            ) as operand,
            field=name,
        ) if field in ("attributes", "capacity"):
            return Read(field, OWN_DOMAIN, name, unparse(tree.Select(operand, name)))
        case _:
            return None


def read_of(node: Expr) -> Read | None:
    """The fact that ``node`` itself reads; None if it reads none."""
    match node:
        case tree.Select(operand=tree.Ident(name="device"), field="driver" as field):
            return Read(field, text=unparse(node))
        case tree.Select(operand=tree.Ident(name="device"), field="allowMultipleAllocations" as f):
            return Read(f, text=unparse(node))
        case tree.Select(operand=operand, field=name) | tree.Has(operand=operand, field=name):
            return _member(operand, name)
        case tree.Index(operand=operand, key=tree.Literal(value=str() as name)):
            return _member(operand, name)
        case _:
            return None


def _member(operand: Expr, name: str) -> Read | None:
    match operand:
        case tree.Index(
            operand=tree.Select(operand=tree.Ident(name="device"), field=field),
            key=tree.Literal(value=str() as domain),
        ) if field in ("attributes", "capacity"):
            text = unparse(tree.Select(operand, name))
            return Read(field, domain, name, text)
        case _:
            return None


def _walk(root: Expr) -> list[Expr]:
    found, ahead = list[Expr](), [root]
    while ahead:
        node = ahead.pop()
        found.append(node)
        ahead.extend(reversed(tree.children(node)))
    return found
