"""A selector in words: ``model is A100, and vram is at least 40Gi``.

Each top-level clause is described. A clause without a description stays as written. Guards are left
out if another clause implies them: ``has(x.model) && x.model == "A100"`` is ``model is A100``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from dray.api.quantities import NANO, InvalidQuantityError, Quantity, parse_quantity
from dray.cel.reads import OWN_DOMAIN, Read, fact_of, read_of
from dray.cel.syntax import tree
from dray.cel.syntax.literals import quoted
from dray.cel.syntax.tree import Expr
from dray.cel.syntax.unparser import unparse

_OPPOSITE: Final = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_RELATIONS: Final = {
    "==": "is", "!=": "is not", "<": "is less than", "<=": "is at most", ">": "is more than",
    ">=": "is at least",
}  # fmt: skip
_TESTS: Final = {
    "startsWith": ("starts with", "does not start with"),
    "endsWith": ("ends with", "does not end with"),
    "contains": ("contains", "does not contain"),
    "matches": ("matches", "does not match"),
    "includes": ("includes", "does not include"),
    "isGreaterThan": ("is more than", "is at most"),
    "isLessThan": ("is less than", "is at least"),
}
_FORMS: Final = {"lowerAscii": "in lower case", "upperAscii": "in upper case", "trim": "trimmed"}
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/:+^$*-]+")
_MEBI: Final = 2**20
_MADE: Final = ("quantity", "semver", "duration", "timestamp")


def describe(root: Expr) -> str:
    """What a selector requires of a device, clause by clause, in the order of the text."""
    whole = _inlined(root, {})
    return ", and ".join(_Describer(whole).clauses(whole))


class _Describer:
    """Describes the clauses of one selector."""

    def __init__(self, root: Expr) -> None:
        reads = [fact_of(node) for node in _nodes(root)]
        self._domains = {read.domain for read in reads if read is not None and read.domain}

    def clauses(self, root: Expr) -> list[str]:
        """The words of each clause."""
        clauses = list(_clauses(root))
        found: list[str] = []
        for at, clause in enumerate(clauses):
            guarded = _presence(clause)
            if guarded and any(self._implies(guarded, other) for other in clauses[at + 1 :]):
                continue
            words = self._clause(clause)
            if words not in found:
                found.append(words)
        return found

    def _implies(self, guarded: Read, clause: Expr) -> bool:
        """Whether a clause that is described names the fact that a guard before it tests."""
        if _presence(clause) is not None or self._worded(clause, negated=False) is None:
            return False
        return any(_same(guarded, fact_of(node)) for node in _nodes(clause))

    def _clause(self, clause: Expr) -> str:
        words = self._worded(clause, negated=False)
        return unparse(clause) if words is None else words

    def _worded(self, clause: Expr, *, negated: bool) -> str | None:
        """The words of a clause, or of its opposite; None if there are none."""
        match clause:
            case tree.Unary(operator="!", operand=operand):
                return self._worded(operand, negated=not negated)
            case tree.Logical():
                return self._joined(clause, negated)
            case tree.Literal(kind="bool", value=bool() as value):
                return "any device" if value is not negated else "no device"
            case tree.Binary(operator="in"):
                return self._membership(clause, negated)
            case tree.Binary():
                return self._relation(clause, negated)
            case tree.Call(target=target) if target is not None:
                return self._test(clause, target, negated)
            case _:
                return self._fact(clause, negated)

    def _fact(self, clause: Expr, negated: bool) -> str | None:
        read = fact_of(clause)
        if read is None:
            return None
        if isinstance(clause, tree.Has):
            return f"{self._name(read)} is {'not ' * negated}published"
        return f"{self._name(read)} is {'false' if negated else 'true'}"

    def _joined(self, clause: tree.Logical, negated: bool) -> str | None:
        """A chain inside a clause; the opposite of ``a || b`` is ``not a and not b``."""
        parts = [self._worded(term, negated=negated) for term in clause.terms]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        is_or = (clause.operator == "||") is not negated
        text = (" or " if is_or else " and ").join(dict.fromkeys(known))
        return f"either {text}" if is_or and len(known) > 1 else text

    def _membership(self, clause: tree.Binary, negated: bool) -> str | None:
        guarded = _presence(clause)
        if guarded is not None:
            return f"{self._name(guarded)} is {'not ' * negated}published"
        if isinstance(clause.right, tree.ListLiteral):
            subject = self._subject(clause.left)
            values = [self._value(item.value) for item in clause.right.items if not item.optional]
            known = [value for value in values if value is not None]
            if subject is None or not known or len(known) < len(clause.right.items):
                return None
            return f"{subject} is {'none of' if negated else 'one of'} {', '.join(known)}"
        subject, value = self._subject(clause.right), self._value(clause.left)
        if subject is None or value is None:
            return None
        return f"{subject} {'does not include' if negated else 'includes'} {value}"

    def _relation(self, clause: tree.Binary, negated: bool) -> str | None:
        left, operator, right = clause.left, clause.operator, clause.right
        if operator not in _RELATIONS:
            return None
        if self._subject(left) is None and _compared(left) is None:
            left, operator, right = right, _MIRRORED[operator], left
        if negated:
            operator = _OPPOSITE[operator]
        compared = _compared(left)
        if compared is not None and isinstance(right, tree.Literal) and right.value == 0:
            left, right = compared
        subject, value = self._subject(left), self._value(right)
        if subject is None or value is None:
            return None
        return f"{subject} {_RELATIONS[operator]} {value}"

    def _test(self, clause: tree.Call, target: Expr, negated: bool) -> str | None:
        words = _TESTS.get(clause.function)
        subject = self._subject(target)
        if words is None or subject is None or len(clause.arguments) != 1:
            return None
        value = self._value(clause.arguments[0])
        return None if value is None else f"{subject} {words[negated]} {value}"

    def _subject(self, node: Expr) -> str | None:
        """A fact of the device, or a value derived from it."""
        read = fact_of(node)
        if read is not None:
            return self._name(read)
        match node:
            case tree.Call(function=name, target=target) if name in _FORMS and target:
                inner = self._subject(target)
                return None if inner is None else f"{inner} {_FORMS[name]}"
            case tree.Call(function="size", target=target, arguments=()) if target:
                inner = self._subject(target)
                return None if inner is None else f"the size of {inner}"
            case tree.Call(function="major" | "minor" | "patch" as part, target=target) if target:
                inner = self._subject(target)
                return None if inner is None else f"the {part} version of {inner}"
            case tree.Call(function="asApproximateFloat" | "asInteger", target=target) if target:
                return self._subject(target)
            case tree.Call(function="orValue", target=tree.Select() as found, arguments=(other,)):
                inner = self._subject(tree.Select(found.operand, found.field))
                value = self._value(other)
                return f"{inner} (else {value})" if inner and value else None
            case _:
                return None

    def _name(self, read: Read) -> str:
        if read.domain and len(self._domains) > 1:
            domain = "its driver" if read.domain == OWN_DOMAIN else read.domain
            return f"{read.name} of {domain}"
        return read.name or read.field

    def _value(self, node: Expr) -> str | None:
        match node:
            case tree.Literal(value=""):
                return "empty"
            case tree.Literal(value=str() as text):
                return text if _PLAIN.fullmatch(text) else quoted(text)
            case tree.Literal():
                return unparse(node)
            case tree.Call(
                function=name, target=None, arguments=(tree.Literal(value=str() as text), *_)
            ):
                return _amount(text) if name in _MADE else None
            case tree.Call(target=None):
                return None
            case _:
                return self._subject(node)


def _inlined(node: Expr, names: Mapping[str, Expr]) -> Expr:
    """``node`` with the variables of ``cel.bind`` replaced by their values."""
    match node:
        case tree.Ident():
            return names.get(node.name, node)
        case tree.Bind() if _is_path(node.value):
            value = _inlined(node.value, names)
            return _inlined(node.body, {**names, node.variable: value})
        case tree.Bind():
            names = {name: part for name, part in names.items() if name != node.variable}
        case tree.Macro():
            names = {name: part for name, part in names.items() if name not in node.variables}
    return tree.with_children(node, lambda child: _inlined(child, names))


def _is_path(node: Expr) -> bool:
    """Whether it only names a part of something, so that it may be repeated."""
    while isinstance(node, (tree.Select, tree.Index)):
        node = node.operand
    return isinstance(node, tree.Ident)


def _clauses(root: Expr) -> Iterable[Expr]:
    if isinstance(root, tree.Logical) and root.operator == "&&":
        for term in root.terms:
            yield from _clauses(term)
    else:
        yield root


def _same(guarded: Read, read: Read | None) -> bool:
    return read is not None and (guarded.field, guarded.domain, guarded.name) == (
        read.field,
        read.domain,
        read.name,
    )


def _nodes(root: Expr) -> Iterable[Expr]:
    ahead = [root]
    while ahead:
        node = ahead.pop()
        yield node
        ahead.extend(tree.children(node))


def _compared(node: Expr) -> tuple[Expr, Expr] | None:
    """The two sides of ``a.compareTo(b)``."""
    match node:
        case tree.Call(function="compareTo", target=target, arguments=(other,)) if target:
            return target, other
        case _:
            return None


def _amount(text: str) -> str:
    """An amount as people write it: ``40Gi`` for 42949672960."""
    try:
        units = parse_quantity(text).integer
    except InvalidQuantityError:
        return text
    if units is None or units == 0 or units % _MEBI:
        return text
    return str(Quantity(units * NANO, binary=True))


def _presence(clause: Expr) -> Read | None:
    """The fact whose presence is all that a clause tests."""
    match clause:
        case tree.Has():
            return read_of(clause)
        case tree.Binary(operator="in", left=tree.Literal(value=str() as name), right=right):
            return read_of(tree.Select(right, name))
        case _:
            return None
