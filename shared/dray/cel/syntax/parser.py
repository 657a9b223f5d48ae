"""CEL text to tree: the grammar that the Kubernetes API server accepts.

Operators are resolved by precedence with a stack. Chains of ``&&``, ``||`` and members are parsed
in loops, so that only brackets and branches recurse. Their depth has cel-go's limits. Hostile text
gives an error with a position. It can't crash or block the parser.
"""

from typing import Final, NoReturn

from dray.cel.environment import DEFAULT, Environment
from dray.cel.errors import CelSyntaxError
from dray.cel.source import SourceLocation
from dray.cel.syntax import tree
from dray.cel.syntax.lexer import NAME_STARTS, QUOTES, kind_of, position, scan, unrecognized
from dray.cel.syntax.literals import LITERALS, LiteralError
from dray.cel.syntax.macros import MACRO_NAMES, MacroError, expand
from dray.cel.syntax.recursion_limit import raise_recursion_limit
from dray.cel.syntax.tree import Expr

MAX_NESTING: Final = 250
"""cel-go's limit for nested rules: expressions, relations, sums."""

KEYWORDS: Final = frozenset(("in", "true", "false", "null"))
"""Words that are tokens of their own and never names."""
_CONSTANTS: Final[dict[str, tuple[str, bool | None]]] = {
    "true": ("bool", True),
    "false": ("bool", False),
    "null": ("null", None),
}
"""Kind and value of the words that are literals."""
_OPERAND: Final = """{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, \
NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"""
_LEVELS: Final = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 1),
    **dict.fromkeys("+-", 2),
    **dict.fromkeys("*/%", 3),
}
"""Precedence of the operators between two operands, except ``&&`` and ``||``."""
_FOLLOWING: Final = {*_LEVELS, "", "&&", "||", "?", ":", ",", ")", "]", "}"}
_RESERVED_WORDS = """
as break const continue else for function if import let loop package namespace return var void while
"""
RESERVED = frozenset(_RESERVED_WORDS.split())
"""Words that may be fields, but neither variables nor functions."""

MAX_LENGTH: Final = 100_000
"""cel-go's limit in code points. Expressions in objects have a lower limit, in bytes."""


def parse(source: str, environment: Environment = DEFAULT) -> Expr:
    """The tree of ``source``, as the grammar of ``environment`` reads it.

    Raises:
        CelSyntaxError: not CEL, longer than ``MAX_LENGTH``, or nested too deeply.
    """
    if len(source) > MAX_LENGTH:
        reason = "expression code point size exceeds limit: "
        reason += f"size: {len(source)}, limit {MAX_LENGTH}"
        raise CelSyntaxError(reason, source[:80], 1, 1)
    if not source.isascii():
        _refuse_surrogates(source)
    return _Parser(source, environment).whole()


def _refuse_surrogates(source: str) -> None:
    try:
        source.encode()
    except UnicodeEncodeError as error:
        place = position(source, error.start)
        shown = source.encode(errors="replace").decode()
        raise CelSyntaxError("Syntax error: not valid Unicode", shown, *place) from None


class _Parser:
    """The parse of one text: its tokens, and the nesting of the grammar's rules."""

    __slots__ = (
        "at", "escapes", "expressions", "has_braces", "relations", "source", "starts", "sums",
        "texts",
    )  # fmt: skip

    def __init__(self, source: str, environment: Environment) -> None:
        self.source = source
        self.texts, self.starts = scan(source)
        self.at = 0
        """The index of the next token."""
        self.escapes = environment.knows_escaped_names
        self.has_braces = "{" in self.texts
        self.expressions = self.relations = self.sums = 0

    def whole(self) -> Expr:
        texts = self.texts
        raise_recursion_limit(
            texts.count("(") + texts.count("[") + texts.count("{") + texts.count("?")
        )
        node = self.expression()
        if texts[self.at]:
            self.unexpected("<EOF>")
        if len(texts) > MAX_NESTING:
            self._check_depth(node)
        return node

    def _check_depth(self, root: Expr) -> None:
        """cel-go counts operators and members, but neither ``&&``, ``||``, ``!`` nor brackets."""
        ahead = [(root, 0)]
        while ahead:
            node, depth = ahead.pop()
            depth += _is_counted(node)
            if depth > MAX_NESTING:
                self.fail("max recursion depth exceeded", node.place.start)
            ahead += [(child, depth) for child in tree.children(node)]

    def expression(self) -> Expr:
        """``a || b ? c : d``."""
        self.expressions += 1
        if self.expressions > MAX_NESTING:
            self.too_deep()
        node = self._alternatives()
        if self.texts[self.at] == "?":
            point = self.starts[self.at]
            self.at += 1
            then = self._alternatives()
            self.expect(":")
            otherwise = self.expression()
            place = self.since(node.place.start, point)
            node = tree.Conditional(node, then, otherwise, place=place)
        self.expressions -= 1
        return node

    def _alternatives(self) -> Expr:
        """``a && b || c``. Each operand is a relation or binds closer than one."""
        relations, sums = self.relations, self.sums
        if relations >= MAX_NESTING or sums >= MAX_NESTING:
            self.too_deep()
        self.relations, self.sums = relations + 1, sums + 1
        node = self._conjunction()
        if self.texts[self.at] == "||":
            terms = [node]
            while self.accept("||"):
                terms.append(self._conjunction())
            node = self._chain("||", terms)
        self.relations, self.sums = relations, sums
        return node

    def _conjunction(self) -> Expr:
        texts = self.texts
        node = self._operand()
        if texts[self.at] in _LEVELS:
            node = self._binary(node)
        if texts[self.at] != "&&":
            return node
        terms = [node]
        while texts[self.at] == "&&":
            self.at += 1
            node = self._operand()
            if texts[self.at] in _LEVELS:
                node = self._binary(node)
            terms.append(node)
        return self._chain("&&", terms)

    def _chain(self, operator: str, terms: list[Expr]) -> Expr:
        """A chain. Its position is the operator at the root of cel-go's balanced tree."""
        middle = terms[(len(terms) - 1) // 2].place.end
        point = self.source.find(operator, middle)
        place = SourceLocation(terms[0].place.start, terms[-1].place.end, point, self.source)
        return tree.Logical(operator, tuple(terms), place=place)

    def _binary(self, first: Expr) -> Expr:
        """Relations, sums and products after their first operand."""
        texts, relations, sums = self.texts, self.relations, self.sums
        operands, operators = [first], list[int]()
        while level := _LEVELS.get(texts[self.at]):
            while operators and _LEVELS[texts[operators[-1]]] >= level:
                self._reduce(operands, operators)
            operators.append(self.at)
            self.at += 1
            related = _LEVELS[texts[operators[0]]] == 1
            self.relations = relations + related
            self.sums = sums + len(operators) - related
            if self.relations > MAX_NESTING or self.sums > MAX_NESTING:
                self.too_deep()
            operands.append(self._operand())
        while operators:
            self._reduce(operands, operators)
        self.relations, self.sums = relations, sums
        return operands[0]

    def _reduce(self, operands: list[Expr], operators: list[int]) -> None:
        at, right = operators.pop(), operands.pop()
        left = operands[-1]
        place = SourceLocation(left.place.start, right.place.end, self.starts[at], self.source)
        operands[-1] = tree.Binary(self.texts[at], left, right, place=place)

    def _operand(self) -> Expr:
        """Signs, one primary, and the members after it: ``!a.b[c].d(e)``."""
        texts = self.texts
        sign = texts[self.at]
        if sign != "!" and sign != "-":
            return self.members(self.primary())
        first = self.at
        while texts[self.at] == sign:
            self.at += 1
        count = self.at - first
        kind = kind_of(texts[self.at])
        if sign == "-" and count == 1 and kind in ("int", "double"):
            return self.members(self.literal(kind, 1))
        node = self.members(self._negative() if texts[self.at] == "-" else self.primary())
        if count % 2 == 0:
            return node
        start = self.starts[first]
        return tree.Unary(sign, node, place=self.since(start, start))

    def _negative(self) -> Expr:
        """The number after ``!-``. Only a number may have a sign there."""
        kind = kind_of(self.texts[self.at + 1])
        if kind not in ("int", "double"):
            self.unexpected()
        self.at += 1
        return self.literal(kind, 1)

    # Operands: literals, names, brackets, and the members that follow them.

    def primary(self) -> Expr:
        text = self.texts[self.at]
        if text == "." or (text[:1] in NAME_STARTS and text[-1] not in QUOTES and text != "in"):
            return self._name()
        kind = kind_of(text)
        if kind in LITERALS:
            return self.literal(kind)
        if text not in ("(", "[", "{"):
            self.unexpected()
        start = self.starts[self.at]
        self.at += 1
        if text == "[":
            return self._list(start)
        if text == "{":
            return self._map(start)
        node = self.expression()
        self.expect(")")
        return tree.replace(node, place=self.since(start, node.place.point))

    def literal(self, kind: str, signs: int = 0) -> Expr:
        """The next literal, with the minus before it if there is one."""
        text, start = self.texts[self.at], self.starts[self.at - signs]
        self.at += 1
        try:
            value = LITERALS[kind]("-" + text if signs else text)
        except LiteralError as error:
            self.fail(str(error), start)
        return tree.Literal(kind, value, place=self.since(start, start))

    def _name(self) -> Expr:
        texts, starts, at = self.texts, self.starts, self.at
        start = starts[at]
        name = texts[at]
        dot = ""
        if name == ".":
            dot, at = ".", at + 1
            name = texts[at]
        elif name in _CONSTANTS:
            self.at += 1
            kind, value = _CONSTANTS[name]
            return tree.Literal(kind, value, place=self.since(start, start))
        self.at = at
        self.identifier()
        ahead = texts[at + 1]
        if ahead == "{" or (ahead == "." and self.has_braces):
            message = self._message(dot + name, start)
            if message is not None:
                return message
        if name in RESERVED:
            self.fail(f"reserved identifier: {name}", start)
        if ahead == "(":
            return self._call(dot + name, None, start)
        place = SourceLocation(start, starts[at] + len(name), starts[at], self.source)
        return tree.Ident(dot + name, place=place)

    def members(self, node: Expr) -> Expr:
        """``node`` with all ``.x``, ``.?x``, ``.x(…)``, ``[x]`` and ``[?x]`` after it."""
        texts, starts, source, start = self.texts, self.starts, self.source, node.place.start
        while True:
            at = self.at
            text = texts[at]
            if text == ".":
                optional = texts[at + 1] == "?"
                self.at = at = at + 1 + optional
                field = self.field_name()
                if texts[at + 1] == "(" and not optional:
                    node = self._call(field, node, start)
                    continue
                end = starts[at] + len(texts[at])
                place = SourceLocation(start, end, starts[at - 1 - optional], source)
                node = tree.Select(node, field, optional, place=place)
            elif text == "[":
                optional = texts[at + 1] == "?"
                self.at = at + 1 + optional
                key = self.expression()
                self.expect("]")
                end = starts[self.at - 1] + 1
                place = SourceLocation(start, end, starts[at], source)
                node = tree.Index(node, key, optional, place=place)
            else:
                return node

    def _call(self, name: str, target: Expr | None, start: int) -> Expr:
        point = self.starts[self.at]
        self.at += 1
        arguments = list[Expr]()
        if not self.accept(")"):
            arguments.append(self.expression())
            while self.accept(","):
                arguments.append(self.expression())
            self.expect(")")
        call = tree.Call(name, tuple(arguments), target, place=self.since(start, point))
        if name not in MACRO_NAMES:
            return call
        try:
            return expand(call)
        except MacroError as error:
            raise CelSyntaxError(
                str(error), self.source, error.place.line, error.place.column
            ) from None

    def _list(self, start: int) -> Expr:
        items = list[tree.ListItem]()
        self._lone_comma("]")
        while not self.accept("]"):
            optional = self.accept("?")
            value = self.expression()
            items.append(tree.ListItem(value, optional, place=value.place))
            self._separator("]")
        return tree.ListLiteral(tuple(items), place=self.since(start, start))

    def _map(self, start: int) -> Expr:
        entries = list[tree.MapEntry]()
        self._lone_comma("}")
        while not self.accept("}"):
            optional = self.accept("?")
            key = self.expression()
            point = self.starts[self.at]
            self.expect(":")
            value = self.expression()
            place = self.since(key.place.start, point)
            entries.append(tree.MapEntry(key, value, optional, place=place))
            self._separator("}")
        return tree.MapLiteral(tuple(entries), place=self.since(start, start))

    def _message(self, name: str, start: int) -> Expr | None:
        """The message after the first part of its name was taken; None if it is no message."""
        texts, before = self.texts, self.at
        while texts[self.at] == "." and kind_of(texts[self.at + 1]) == "ident":
            if texts[self.at + 1] in KEYWORDS:
                break
            name += "." + texts[self.at + 1]
            self.at += 2
        if texts[self.at] != "{":
            self.at = before
            return None
        point = self.starts[self.at]
        self.at += 1
        fields = self._fields()
        return tree.MessageLiteral(name, tuple(fields), place=self.since(start, point))

    def _fields(self) -> list[tree.MessageField]:
        fields = list[tree.MessageField]()
        self._lone_comma("}")
        while not self.accept("}"):
            optional = self.accept("?")
            start = self.starts[self.at]
            name = self.field_name()
            point = self.starts[self.at]
            self.expect(":")
            value = self.expression()
            place = self.since(start, point)
            fields.append(tree.MessageField(name, value, optional, place=place))
            self._separator("}")
        return fields

    def _lone_comma(self, closing: str) -> None:
        """Accept a trailing comma without elements: ``[,]``. The grammar allows it."""
        if self.texts[self.at] == "," and self.texts[self.at + 1] == closing:
            self.at += 1

    def _separator(self, closing: str) -> None:
        """Accept a comma (also before the closing bracket), or expect the closing bracket next."""
        if not self.accept(",") and self.texts[self.at] != closing:
            self.unexpected(f"{{'{closing}', ','}}")

    # Tokens and errors.

    def fail(self, reason: str, offset: int) -> NoReturn:
        """Refuse the text because of an error at ``offset``."""
        raise CelSyntaxError(reason, self.source, *position(self.source, offset))

    def unexpected(self, expected: str = _OPERAND) -> NoReturn:
        """Refuse the next token, or an earlier text that is not a token, as ANTLR does."""
        for text, start in zip(self.texts[: self.at + 1], self.starts, strict=False):
            if not kind_of(text):
                raise unrecognized(self.source, start)
        text = self.texts[self.at]
        seen = f"'{text[:40] or '<EOF>'}'"
        if text and f"'{self.texts[self.at + 1] or '<EOF>'}'" == expected.replace(
            "<EOF>", "'<EOF>'"
        ):
            reason = f"extraneous input {seen} expecting {expected}"
        elif expected == "')'" and text in _FOLLOWING:
            reason = f"missing {expected} at {seen}"
        else:
            reason = f"mismatched input {seen} expecting {expected}"
        self.fail(f"Syntax error: {reason}", self.starts[self.at])

    def too_deep(self) -> NoReturn:
        self.fail(f"expression recursion limit exceeded: {MAX_NESTING}", self.starts[self.at])

    def accept(self, text: str) -> bool:
        if self.texts[self.at] != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        if self.texts[self.at] != text:
            self.unexpected(f"'{text}'")
        self.at += 1

    def identifier(self) -> str:
        """Take the next token, which must be a name."""
        text = self.texts[self.at]
        if text[:1] not in NAME_STARTS or text[-1] in QUOTES or text in KEYWORDS:
            self._no_identifier(text)
        self.at += 1
        return text

    def field_name(self) -> str:
        """Take a field's name. In newer versions it may be in backticks."""
        text = self.texts[self.at]
        if text[:1] != "`" or kind_of(text) != "escaped":
            return self.identifier()
        if not self.escapes:
            self.fail("unsupported syntax: '`'", self.starts[self.at])
        if self.texts[self.at + 1] == "(":
            self._no_identifier(text)
        self.at += 1
        return text[1:-1]

    def _no_identifier(self, text: str) -> NoReturn:
        follows_dot = self.at > 0 and self.texts[self.at - 1] == "."
        if not follows_dot or text in _CONSTANTS or not kind_of(text):
            self.unexpected("IDENTIFIER")
        reason = f"Syntax error: no viable alternative at input '.{text[:40]}'"
        self.fail(reason, self.starts[self.at])

    def since(self, start: int, point: int) -> SourceLocation:
        """The extent from ``start`` to the end of the last token taken."""
        last = self.at - 1
        return SourceLocation(start, self.starts[last] + len(self.texts[last]), point, self.source)


def _is_counted(node: Expr) -> bool:
    match node:
        case tree.Binary() | tree.Select() | tree.Has() | tree.Index() | tree.Conditional():
            return True
        case tree.Macro() | tree.Bind():
            return True
        case tree.Call():
            return node.target is not None
        case _:
            return False
