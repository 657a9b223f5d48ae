"""Which properties of a device can change what an expression gives.

A domain or name that only evaluation tells is ``EVERY``. Names are told from values: ``"x" in
device.attributes["d"]`` and loops over keys depend on the layout alone, which thousands of
devices share, though each has a uuid of its own.
"""

from typing import Final

from dray.cel import tree
from dray.cel.columnar.facts import DRIVER, LAYOUT, MAPS, SHARED, Path
from dray.cel.tree import Expr

EVERY: Final = "*"
"""Stands for all domains, or all names; no domain and no name is written so."""

_Meant = tuple[str, ...]
"""What of the device a term is: ``("device",)``, a map of it, a domain in one, or () for a
plain value."""
_PLAIN: Final[_Meant] = ()
_DEVICE: Final[_Meant] = ("device",)
_OVER_KEYS: Final = ("all", "exists", "exists_one", "existsOne", "filter", "map")

Scope = dict[str, _Meant]


def text_of(node: Expr) -> str:
    """``node`` as written."""
    place = node.place
    return place.text[place.start : place.end]


def paths_of(root: Expr) -> tuple[Path, ...]:
    """The properties that ``root`` may look at, each once, in the order of the text."""
    reader = _Reader()
    reader.value(root, {})
    return tuple(reader.found)


def path_of(node: Expr) -> Path | None:
    """The one property that ``node`` is, if it is nothing but that."""
    reader = _Reader()
    match node:
        case tree.Select(optional=False, operand=operand, field=name):
            meant = reader.meant(operand, {})
        case tree.Index(optional=False, operand=operand, key=tree.Literal(value=str() as name)):
            meant = reader.meant(operand, {})
        case _:
            return None
    if meant == _DEVICE and name not in MAPS:
        return Path(name)
    if len(meant) == 2 and meant[1] != EVERY and not reader.found:
        return Path(meant[0], meant[1], name)
    return None


def presence_of(node: Expr) -> Path | None:
    """The property of which ``node`` tells only whether the device has it."""
    match node:
        case tree.Has(operand=operand, field=name):
            found = path_of(tree.Select(operand=operand, field=name))
        case tree.Binary(operator="in", left=tree.Literal(value=str() as name), right=right):
            found = path_of(tree.Select(operand=right, field=name))
        case _:
            return None
    return found if found is not None and found.field in MAPS else None


class _Reader:
    """Notes what is read on the way through a tree."""

    def __init__(self) -> None:
        self.found: dict[Path, None] = {}

    def value(self, node: Expr, scope: Scope) -> None:
        """Note what ``node`` reads, and all of what it is, for its value goes elsewhere."""
        self._escape(self.meant(node, scope))

    def meant(self, node: Expr, scope: Scope) -> _Meant:
        """What of the device ``node`` is, before anything is read of that."""
        match node:
            case tree.Ident():
                return self._ident(node.name, scope)
            case tree.Select():
                return self._member(
                    self.meant(node.operand, scope), node.field, is_optional=node.optional
                )
            case tree.Index(key=tree.Literal(value=str() as name)):
                return self._member(
                    self.meant(node.operand, scope), name, is_optional=node.optional
                )
            case tree.Index():
                self.value(node.key, scope)
                return self._member(
                    self.meant(node.operand, scope), EVERY, is_optional=node.optional
                )
            case tree.Bind():
                inner = {**scope, node.variable: self.meant(node.value, scope)}
                return self.meant(node.body, inner)
            case tree.Has():
                self._tested(self.meant(node.operand, scope), node.field)
            case tree.Binary(operator="in"):
                self._membership(node, scope)
            case tree.Macro():
                self._macro(node, scope)
            case tree.Call(function="size", target=None, arguments=(operand,)):
                self._keys(self.meant(operand, scope))
            case tree.Call(function="size", target=target, arguments=()) if target is not None:
                self._keys(self.meant(target, scope))
            case _:
                for child in tree.children(node):
                    self.value(child, scope)
        return _PLAIN

    def _ident(self, name: str, scope: Scope) -> _Meant:
        short = name.removeprefix(".")
        if short != name:
            self._escape(scope.get(short, _PLAIN))
            return _DEVICE if short == "device" else _PLAIN
        return scope.get(name, _DEVICE if name == "device" else _PLAIN)

    def _member(self, operand: _Meant, name: str, *, is_optional: bool) -> _Meant:
        match operand:
            case ("device",) if is_optional or name not in (*MAPS, *DRIVER, *SHARED):
                self._escape(_DEVICE)
            case ("device",) if name in MAPS:
                return (name,)
            case ("device",):
                self._note(Path(name))
            case (field,) if is_optional:
                self._escape((field, name))
            case (field,):
                return (field, name)
            case (field, domain):
                self._note(Path(field, domain, name))
        return _PLAIN

    def _tested(self, operand: _Meant, name: str) -> None:
        """``has(operand.name)``."""
        match operand:
            case (field, domain):
                self._note(Path(field, domain, name))
            case _:
                self._keys(operand)

    def _membership(self, node: tree.Binary, scope: Scope) -> None:
        container = self.meant(node.right, scope)
        match container, node.left:
            case (field, domain), tree.Literal(value=str() as name):
                self._note(Path(field, domain, name))
            case _:
                self.value(node.left, scope)
                self._keys(container)

    def _macro(self, node: tree.Macro, scope: Scope) -> None:
        operand = self.meant(node.operand, scope)
        if len(node.variables) == 1 and node.name in _OVER_KEYS:
            self._keys(operand)
        else:
            self._escape(operand)
        inner = {**scope, **dict.fromkeys(node.variables, _PLAIN)}
        for argument in node.arguments:
            self.value(argument, inner)

    def _keys(self, meant: _Meant) -> None:
        """Only which keys there are is looked at."""
        if meant == _DEVICE:
            self._escape(meant)
        elif meant:
            self._note(LAYOUT)

    def _escape(self, meant: _Meant) -> None:
        """All of it may be looked at."""
        match meant:
            case ("device",):
                for path in (DRIVER, SHARED):
                    self._note(path)
                for field in MAPS:
                    self._note(Path(field, EVERY, EVERY))
            case (field,):
                self._note(Path(field, EVERY, EVERY))
            case (field, domain):
                self._note(Path(field, domain, EVERY))

    def _note(self, path: Path) -> None:
        if path.name == EVERY:
            self.found.setdefault(LAYOUT)
        self.found.setdefault(path)
