"""Tree to text: the shortest spelling that parses back to the same tree."""

import re
from typing import Final

from dray.cel.syntax import tree
from dray.cel.syntax.literals import quoted, quoted_bytes
from dray.cel.syntax.parser import KEYWORDS
from dray.cel.syntax.tree import Expr

_TERNARY, _OR, _AND, _RELATION, _SUM, _PRODUCT, _UNARY, _MEMBER = range(8)
_DIGITS: Final = "0123456789."
_PLAIN: Final = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")
_LEVELS: Final = {
    "||": _OR,
    "&&": _AND,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), _RELATION),
    **dict.fromkeys("+-", _SUM),
    **dict.fromkeys("*/%", _PRODUCT),
}


def unparse(node: Expr, *, lines: bool = False) -> str:
    """The text of ``node``; with ``lines``, each top-level ``&&`` term on a line of its own."""
    if lines and isinstance(node, tree.Logical) and node.operator == "&&":
        return " &&\n".join(_text(term, _AND + 1) for term in node.terms)
    return _text(node, _TERNARY)


def _text(node: Expr, level: int) -> str:
    """The text of ``node`` as an operand that must have at least ``level``."""
    text = _bare(node)
    return f"({text})" if _level(node) < level else text


def _level(node: Expr) -> int:
    match node:
        case tree.Conditional():
            return _TERNARY
        case tree.Logical() | tree.Binary():
            return _LEVELS[node.operator]
        case tree.Unary():
            return _UNARY
        case tree.Literal(kind="int" | "double") if str(node.value).startswith("-"):
            return _UNARY  # -1.x would read as -(1.x) to people, and -(-1) needs its parentheses
        case _:
            return _MEMBER


def _bare(node: Expr) -> str:
    match node:
        case tree.Literal():
            return _literal(node)
        case tree.Ident():
            return node.name
        case tree.Select():
            mark = ".?" if node.optional else "."
            return f"{_text(node.operand, _MEMBER)}{mark}{_field(node.field)}"
        case tree.Has():
            return f"has({_text(node.operand, _MEMBER)}.{_field(node.field)})"
        case tree.Index():
            mark = "[?" if node.optional else "["
            return f"{_text(node.operand, _MEMBER)}{mark}{_bare(node.key)}]"
        case tree.Unary():
            operand = _text(node.operand, _MEMBER)
            # Before a digit the sign would become part of the number.
            return (
                f"{node.operator}({operand})" if operand[0] in _DIGITS else node.operator + operand
            )
        case tree.Binary():
            level = _LEVELS[node.operator]
            left, right = _text(node.left, level), _text(node.right, level + 1)
            return f"{left} {node.operator} {right}"
        case tree.Logical():
            level = _LEVELS[node.operator] + 1
            return f" {node.operator} ".join(_text(term, level) for term in node.terms)
        case tree.Conditional():
            condition, then = _text(node.condition, _OR), _text(node.then, _OR)
            return f"{condition} ? {then} : {_bare(node.otherwise)}"
        case _:
            return _compound(node)


def _compound(node: Expr) -> str:
    match node:
        case tree.Call():
            target = "" if node.target is None else _text(node.target, _MEMBER) + "."
            return f"{target}{node.function}({_comma(node.arguments)})"
        case tree.Macro():
            arguments = ", ".join([*node.variables, *map(_bare, node.arguments)])
            return f"{_text(node.operand, _MEMBER)}.{node.name}({arguments})"
        case tree.Bind():
            return f"cel.bind({node.variable}, {_comma((node.value, node.body))})"
        case tree.ListLiteral():
            return "[" + ", ".join(_mark(i.optional) + _bare(i.value) for i in node.items) + "]"
        case tree.MapLiteral():
            pairs = (
                f"{_mark(e.optional)}{_comma((e.key,))}: {_bare(e.value)}" for e in node.entries
            )
            return "{" + ", ".join(pairs) + "}"
        case tree.MessageLiteral():
            pairs = (f"{_mark(f.optional)}{_field(f.name)}: {_bare(f.value)}" for f in node.fields)
            return node.name + "{" + ", ".join(pairs) + "}"
        case _:
            raise TypeError(f"{type(node).__name__} has no spelling")


def _field(name: str) -> str:
    """The name of a field, in backticks if it is not a plain name."""
    return name if _PLAIN.fullmatch(name) and name not in KEYWORDS else f"`{name}`"


def _comma(nodes: tuple[Expr, ...]) -> str:
    return ", ".join(map(_bare, nodes))


def _mark(optional: bool) -> str:
    return "?" if optional else ""


def _literal(node: tree.Literal) -> str:
    match node.value:
        case None:
            return "null"
        case bool():
            return "true" if node.value else "false"
        case str():
            return quoted(node.value)
        case bytes():
            return quoted_bytes(node.value)
        case int():
            return f"{node.value}u" if node.kind == "uint" else str(node.value)
        case float():
            text = repr(node.value)
            return text if "." in text or "e" in text else text + ".0"
