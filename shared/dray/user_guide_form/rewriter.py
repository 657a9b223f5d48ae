"""Applies the rows of the dialect's table to a tree."""

from dray.api.names import DRIVER
from dray.cel.errors import CelCompileError, nearest
from dray.cel.reads import read_of
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr
from dray.cel.syntax.unparser import unparse
from dray.user_guide_form import paths
from dray.user_guide_form.vocabulary import ATTRIBUTES, CAPACITIES, REFUSED

_GO_NAME = "AsApproximateFloat64"
_CEL_NAME = "asApproximateFloat"
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_MAP_METHODS = ("size",)
_OF_QUANTITIES = frozenset(
    (_CEL_NAME, "add", "asInteger", "compareTo", "isGreaterThan", "isInteger", "isLessThan", "sub")
)
_ORDERS = ("<", "<=", ">", ">=")
_IN_WORDS = {"string": "a string", "int": "an int"}
_IS_TEXT = "the attribute is a string that holds a quantity"


class UserGuideDialectError(CelCompileError):
    """An expression of the user guide's dialect with an unknown name or an unconverted quantity."""


def uses_user_guide_dialect(root: Expr) -> bool:
    """Whether the tree reads a device as in the user guide, or calls a function that only the user
    guide has."""
    return _is_user_guide_dialect(root, is_value=True)


def is_bare_value(root: Expr) -> bool:
    """Whether the tree is only one read of a device, in either dialect."""
    value: Expr | None = root
    if isinstance(root, tree.Call) and root.function in (_GO_NAME, _CEL_NAME):
        value = root.target
    if value is None:
        return False
    read = read_of(value)
    return _leaf(value) is not None or (read is not None and read.domain == DRIVER)


def _is_user_guide_dialect(node: Expr, *, is_value: bool) -> bool:
    if is_value and _leaf(node):
        return True
    if isinstance(node, tree.Call) and node.function == _GO_NAME and node.target is not None:
        return True
    return any(
        _is_user_guide_dialect(child, is_value=_reads_value(node, child))
        for child in tree.children(node)
    )


def _reads_value(parent: Expr, child: Expr) -> bool:
    """Whether ``parent`` uses ``child`` as a plain value. A DRA map is never used as one."""
    match parent:
        case tree.Select() | tree.Has() | tree.Bind() | tree.Macro():
            return False
        case tree.Index():
            return child is parent.key
        case tree.Binary(operator="in"):
            return child is parent.left
        case tree.Call():
            return child is not parent.target or parent.function not in _MAP_METHODS
        case _:
            return True


def _leaf(node: Expr) -> tuple[str, str] | None:
    """Field and name of ``device.attributes["name"]`` or ``device.capacity["name"]``."""
    match node:
        case tree.Index(
            operand=tree.Select(operand=tree.Ident(name="device"), field=field, optional=False),
            key=tree.Literal(value=str() as name),
            optional=False,
        ) if field in ("attributes", "capacity"):
            short = name.removeprefix(DRIVER + "/")
            return (field, short) if "." not in short else None
        case _:
            return None


class Rewriter:
    """Rewrites one expression. Remembers the changes, and the facts that it now reads."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.changes: dict[str, None] = {}
        self.read: set[tuple[str, str]] = set()

    def rewritten(self, node: Expr) -> Expr:
        """``node`` in the DRA dialect.

        Raises:
            UserGuideDialectError: an unknown name, or a quantity that is compared unconverted.
        """
        leaf = _leaf(node)
        if leaf:
            return self._member(node, *leaf)
        match node:
            case tree.Call(function=function, target=target) if target and function == _GO_NAME:
                return self._converted(node, target)
            case tree.Call(function=function, target=target) if target:
                if function in _OF_QUANTITIES:
                    return tree.with_children(node, self._measured)
            case tree.Binary(operator="in", left=tree.Literal(value=str()), right=right):
                return self._membership(node, right)
            case tree.Binary(operator=operator) if operator in _COMPARISONS:
                self._refuse_unconverted(node)
                self._refuse_unordered(node)
        return self._below(node)

    def refuse_bare_values(self, node: Expr) -> None:
        """Refuse an attribute in place of a condition: no attribute of the user guide is a bool.

        Raises:
            UserGuideDialectError: there is one.
        """
        found = _leaf(node)
        if found and found[0] == "attributes" and found[1] in ATTRIBUTES:
            reason = f"'{found[1]}' is not a condition by itself: compare it with a value"
            raise self._fail(reason, node)
        match node:
            case tree.Logical():
                for term in node.terms:
                    self.refuse_bare_values(term)
            case tree.Unary(operator="!", operand=operand):
                self.refuse_bare_values(operand)
            case tree.Conditional(condition=condition):
                self.refuse_bare_values(condition)

    def _below(self, node: Expr) -> Expr:
        """The same node, with rewritten children if they are values."""

        def change(child: Expr) -> Expr:
            keep = _leaf(child) is not None and not _reads_value(node, child)
            return child if keep else self.rewritten(child)

        return tree.with_children(node, change)

    def _fail(self, reason: str, node: Expr) -> UserGuideDialectError:
        return UserGuideDialectError(reason, self._source, node.place.line, node.place.column)

    def _changed(self, before: Expr, after: Expr, why: str) -> Expr:
        self.changes.setdefault(f"{unparse(before)} → {unparse(after)}: {why}")
        return after

    def _member(self, node: Expr, field: str, name: str) -> Expr:
        known = list(ATTRIBUTES) if field == "attributes" else list(CAPACITIES)
        if name not in known:
            raise self._unknown(node, field, name, known)
        self.read.add((field, name))
        path = paths.attribute if field == "attributes" else paths.capacity
        why = "the first index is the domain, which is the driver's name"
        return self._changed(node, path(name, node.place), why)

    def _unknown(
        self, node: Expr, field: str, name: str, known: list[str]
    ) -> UserGuideDialectError:
        kind = "attribute" if field == "attributes" else "capacity"
        other = ATTRIBUTES if field == "capacity" else CAPACITIES
        if name in REFUSED:
            reason = f"'{name}': {REFUSED[name]}"
        elif name in other:
            place = "device.attributes" if field == "capacity" else "device.capacity"
            reason = f"'{name}' is read from {place}, not from device.{field}"
        else:
            reason = f"'{name}' is not {'an' if kind == 'attribute' else 'a'} {kind} of a device"
        names = f"known {'attributes' if kind == 'attribute' else 'capacities'}"
        text = f"{reason}{nearest(name, known)}; {names}: {', '.join(known)}"
        return self._fail(text, node)

    def _converted(self, node: tree.Call, target: Expr) -> Expr:
        """``target.AsApproximateFloat64()``."""
        value = self.rewritten(target)
        read = read_of(value)
        kind = ATTRIBUTES.get(read.name, "") if read and read.field == "attributes" else "capacity"
        if kind == "string":
            raise self._fail(f"{unparse(target)} is a string and not a quantity", node)
        if kind == "int":
            double = tree.Call("double", (value,), place=node.place)
            return self._changed(node, double, "it is an int already")
        why = "the method's name in CEL"
        if kind == "quantity" and read is not None:
            self.read.add((read.field, read.name))
            value = paths.quantity(value)
            why = _IS_TEXT
        call = tree.Call(_CEL_NAME, node.arguments, value, place=node.place)
        return self._changed(node, call, why)

    def _measured(self, child: Expr) -> Expr:
        """The target or an argument of a quantity's method."""
        field, name = _leaf(child) or ("", "")
        kind = ATTRIBUTES.get(name, "") if field == "attributes" else ""
        if kind in _IN_WORDS:
            raise self._fail(f"{unparse(child)} is {_IN_WORDS[kind]} and not a quantity", child)
        value = self.rewritten(child)
        return self._changed(child, paths.quantity(value), _IS_TEXT) if kind else value

    def _membership(self, node: tree.Binary, right: Expr) -> Expr:
        """``"model" in device.attributes``: in the user guide, this tests an attribute of the
        driver."""
        match node.left, right:
            case (
                tree.Literal(value=str() as name),
                tree.Select(operand=tree.Ident(name="device"), field=field, optional=False),
            ) if name in (ATTRIBUTES if field == "attributes" else CAPACITIES):
                after = tree.replace(node, right=paths.domain(field, right.place))
                return self._changed(node, after, "names are looked up in the driver's domain")
        return self._below(node)

    def _refuse_unconverted(self, node: tree.Binary) -> None:
        for side, other in ((node.left, node.right), (node.right, node.left)):
            field, name = _leaf(side) or ("", "")
            is_text = isinstance(other, tree.Literal) and isinstance(other.value, str)
            if field == "capacity" and name in CAPACITIES:
                what = "a Quantity can't be compared directly"
            elif ATTRIBUTES.get(name) == "quantity" and not (
                node.operator in ("==", "!=") and (is_text or _leaf(other))
            ):
                what = f"'{name}' is a string that holds a quantity"
            else:
                continue
            raise self._fail(f"{what}: write {unparse(side)}.{_GO_NAME}()", side)

    def _refuse_unordered(self, node: tree.Binary) -> None:
        """Refuse comparisons of a text with a number. They would fail on every device."""
        for side, other in ((node.left, node.right), (node.right, node.left)):
            field, name = _leaf(side) or ("", "")
            kind = ATTRIBUTES.get(name) if field == "attributes" else None
            if node.operator not in _ORDERS or not isinstance(other, tree.Literal) or not kind:
                continue
            if isinstance(other.value, str) != (kind == "string"):
                words = f"'{name}' is {_IN_WORDS[kind]}"
                raise self._fail(f"{words}: it can't be compared with {unparse(other)}", side)
