"""CEL text to tree: the grammar that the Kubernetes API server accepts.

The parser resolves operators with a stack of its own and bounds nesting, so that hostile text
is an error with a position and neither a crash nor a hang.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dray.cel import tree
from dray.cel.cursor import Cursor
from dray.cel.errors import CelSyntaxError
from dray.cel.lexer import Token
from dray.cel.literals import (
    LiteralError,
    bytes_value,
    double_value,
    int_value,
    string_value,
    uint_value,
)
from dray.cel.macros import MacroError, expand
from dray.cel.tree import Expr

MAX_LENGTH_BYTES: Final = 10 * 1024
"""``CELSelectorExpressionMaxLength`` of resource.k8s.io/v1."""
MAX_NESTING: Final = 160
"""Brackets, calls and branches inside each other (Kubernetes stops at 250)."""
MAX_DEPTH: Final = 200
"""Levels of the tree, chains such as ``a + b + c`` and ``a.b.c`` included."""

_RESERVED_WORDS: Final = """
as break const continue else for function if import let loop package namespace return var void while
"""
RESERVED: Final = frozenset(_RESERVED_WORDS.split())
_LEVELS: Final = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 3),
    **dict.fromkeys("+-", 4),
    **dict.fromkeys("*/%", 5),
}
_LITERALS: Final[dict[str, Callable[[Token], int | float | str | bytes]]] = {
    "int": lambda token: int_value(token.text),
    "uint": lambda token: uint_value(token.text),
    "double": lambda token: double_value(token.text),
    "string": string_value,
    "bytes": bytes_value,
}


def parse(source: str) -> Expr:
    """The tree of ``source``.

    Raises:
        CelSyntaxError: not CEL, longer than ``MAX_LENGTH_BYTES``, or nested too deeply.
    """
    try:
        size_bytes = len(source.encode())
    except UnicodeEncodeError:
        raise CelSyntaxError("Syntax error: not valid Unicode", "", 1, 1) from None
    if size_bytes > MAX_LENGTH_BYTES:
        reason = f"too long: {size_bytes} bytes, at most {MAX_LENGTH_BYTES} are allowed"
        raise CelSyntaxError(reason, source[:80], 1, 1)
    return _Parser(source).whole()


class _Parser(Cursor):
    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._nesting = 0

    def whole(self) -> Expr:
        node = self._expression()
        if self.token.kind != "end":
            self.unexpected()
        self._check_depth(node)
        return node

    def _check_depth(self, root: Expr) -> None:
        level = [root]
        for _ in range(MAX_DEPTH):
            level = [child for node in level for child in tree.children(node)]
            if not level:
                return
        self.fail("expression recursion limit exceeded", level[0].place.start)

    # The grammar.

    def _expression(self, *, branch: bool = True) -> Expr:
        """``a || b ? c : d``, by operator precedence; without ``branch`` no ``?`` follows."""
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self.fail("expression recursion limit exceeded", self.token.start)
        operands, operators = [self._operand()], list[Token]()
        while level := self._level():
            while operators and _LEVELS[operators[-1].text] >= level:
                self._reduce(operands, operators)
            operators.append(self.next())
            operands.append(self._operand())
        while operators:
            self._reduce(operands, operators)
        node = operands[0]
        if branch and (question := self.accept("?")):
            then = self._expression(branch=False)
            self.expect(":")
            otherwise = self._expression()
            place = self.since(node.place.start, question.start)
            node = tree.Conditional(node, then, otherwise, place=place)
        self._nesting -= 1
        return node

    def _level(self) -> int:
        token = self.token
        if token.kind == "operator" or token.text == "in":
            return _LEVELS.get(token.text, 0)
        return 0

    def _reduce(self, operands: list[Expr], operators: list[Token]) -> None:
        token, right, left = operators.pop(), operands.pop(), operands.pop()
        place = self.place(left.place.start, right.place.end, token.start)
        if token.text not in ("&&", "||"):
            operands.append(tree.Binary(token.text, left, right, place=place))
            return
        bare = self.source[left.place.start] != "(" or not self._grouped(left)
        if isinstance(left, tree.Logical) and left.operator == token.text and bare:
            place = place._replace(line=left.place.line, column=left.place.column)
            terms = (*left.terms, right)
        else:
            terms = (left, right)
        operands.append(tree.Logical(token.text, terms, place=place))

    def _grouped(self, node: tree.Expr) -> bool:
        """Whether a chain's extent begins before its first term: it stood in parentheses."""
        return isinstance(node, tree.Logical) and node.place.start < node.terms[0].place.start

    def _operand(self) -> Expr:
        """Signs, one primary, and what follows it: ``!a.b[c].d(e)``."""
        sign, start = self.token, self.token.start
        count = 0
        while self.token.text == sign.text and self.token.text in ("!", "-"):
            self.next()
            count += 1
        negative = sign.text == "-" and count == 1 and self.token.kind in ("int", "double")
        node = self._literal(self.next(), sign) if negative else self._primary()
        while self.token.text in (".", "[", "{") and self.token.kind == "operator":
            following = self._suffix(node)
            if following is None:
                break
            node = following
        if count % 2 and not negative:
            node = tree.Unary(sign.text, node, place=self.since(start, start))
        return node

    def _primary(self) -> Expr:
        token = self.token
        if token.kind in _LITERALS:
            return self._literal(self.next())
        if token.kind == "ident" or token.text == ".":
            return self._name()
        if token.text not in ("(", "[", "{"):
            self.unexpected()
        self.next()
        if token.text == "(":
            node = self._expression()
            self.expect(")")
            point = node.place
            return replace(node, place=self.since(token.start, token.start)._replace(
                line=point.line, column=point.column))  # fmt: skip
        return self._list(token) if token.text == "[" else self._map(token)

    def _literal(self, token: Token, sign: Token | None = None) -> Expr:
        start = sign.start if sign else token.start
        signed = replace(token, text="-" + token.text) if sign else token
        try:
            value = _LITERALS[token.kind](signed)
        except LiteralError as error:
            self.fail(f"Syntax error: {error}", start)
        return tree.Literal(token.kind, value, place=self.since(start, start))

    def _name(self) -> Expr:
        start = self.token.start
        dot = "." if self.accept(".") else ""
        if not dot and self.token.text in ("true", "false", "null"):
            token = self.next()
            value = {"true": True, "false": False, "null": None}[token.text]
            kind = "null" if value is None else "bool"
            return tree.Literal(kind, value, place=self.since(start, start))
        token = self.identifier()
        if token.text in RESERVED:
            self.fail(f"reserved identifier: {token.text}", start)
        if self.token.text != "(":
            return tree.Ident(dot + token.text, place=self.since(start, start))
        return self._call(dot + token.text, None, start)

    def _suffix(self, node: Expr) -> Expr | None:
        """The node with the next ``.x``, ``.x(…)``, ``[x]`` or ``{…}``; None where none is."""
        start, token = node.place.start, self.token
        if token.text == "{":
            name = _qualified_name(node)
            return self._message(name, start) if name else None
        self.next()
        optional = self.accept("?") is not None
        if token.text == "[":
            key = self._expression()
            self.expect("]")
            return tree.Index(node, key, optional, place=self.since(start, token.start))
        field = self.identifier()
        if not optional and self.token.text == "(":
            return self._call(field.text, node, start)
        return tree.Select(node, field.text, optional, place=self.since(start, token.start))

    def _call(self, name: str, target: Expr | None, start: int) -> Expr:
        opening = self.next()
        arguments = list[Expr]()
        while not arguments or self.accept(","):
            if not arguments and self.accept(")"):
                break
            arguments.append(self._expression())
        else:
            self.expect(")")
        place = self.since(start, opening.start)
        call = tree.Call(name, tuple(arguments), target, place=place)
        try:
            return expand(call)
        except MacroError as error:
            raise CelSyntaxError(
                str(error), self.source, error.place.line, error.place.column
            ) from None

    def _list(self, opening: Token) -> Expr:
        items = list[tree.ListItem]()
        self._lone_comma("]")
        while not self.accept("]"):
            optional = self.accept("?") is not None
            value = self._expression()
            items.append(tree.ListItem(value, optional, place=value.place))
            self._separator("]")
        place = self.since(opening.start, opening.start)
        return tree.ListLiteral(tuple(items), place=place)

    def _map(self, opening: Token) -> Expr:
        entries = list[tree.MapEntry]()
        self._lone_comma("}")
        while not self.accept("}"):
            optional = self.accept("?") is not None
            key = self._expression()
            colon = self.expect(":")
            value = self._expression()
            place = self.since(key.place.start, colon.start)
            entries.append(tree.MapEntry(key, value, optional, place=place))
            self._separator("}")
        return tree.MapLiteral(tuple(entries), place=self.since(opening.start, opening.start))

    def _message(self, name: str, start: int) -> Expr:
        opening = self.next()
        fields = list[tree.MessageField]()
        while not self.accept("}"):
            optional = self.accept("?") is not None
            field = self.identifier()
            self.expect(":")
            value = self._expression()
            place = self.since(field.start, field.start)
            fields.append(tree.MessageField(field.text, value, optional, place=place))
            self._separator("}")
        return tree.Message(name, tuple(fields), place=self.since(start, opening.start))

    def _lone_comma(self, closing: str) -> None:
        """The grammar's trailing comma may stand where nothing precedes it: ``[,]``."""
        if self.token.text == "," and self.tokens[self.at + 1].text == closing:
            self.next()

    def _separator(self, closing: str) -> None:
        """A comma, which may also stand before the closing bracket, or that bracket ahead."""
        if not self.accept(",") and self.token.text != closing:
            self.unexpected(closing)


def _qualified_name(node: Expr) -> str | None:
    """``a.b.c`` where the node is such a name, written without parentheses."""
    parts = list[str]()
    while isinstance(node, tree.Select) and not node.optional:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, tree.Ident):
        return None
    return ".".join([node.name, *reversed(parts)])
