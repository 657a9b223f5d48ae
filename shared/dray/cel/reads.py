"""What an expression reads of a device: the paths it names."""

from dataclasses import dataclass

from dray.cel import tree
from dray.cel.device import DeviceView
from dray.cel.tree import Expr
from dray.cel.unparse import unparse
from dray.cel.values import Value


@dataclass(frozen=True, slots=True)
class Read:
    """One fact of the device: ``field`` alone, or with domain and name."""

    field: str
    domain: str = ""
    name: str = ""
    text: str = ""
    """As an expression."""

    def value(self, device: DeviceView) -> Value | None:
        """The value on ``device``, or None where it is absent."""
        match self.field:
            case "driver":
                return device.driver
            case "allowMultipleAllocations":
                return device.allow_multiple_allocations
            case "attributes":
                return device.attributes_by_domain.get(self.domain, {}).get(self.name)
            case _:
                return device.capacity_by_domain.get(self.domain, {}).get(self.name)


def reads_of(root: Expr) -> tuple[Read, ...]:
    """The facts that ``root`` names by literal domain and name, each once, in order."""
    found: dict[tuple[str, str, str], Read] = {}
    for node in _walk(root):
        read = read_of(node)
        if read is not None:
            found.setdefault((read.field, read.domain, read.name), read)
    return tuple(found.values())


def read_of(node: Expr) -> Read | None:
    """The one fact that ``node`` itself stands for, if it does."""
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
