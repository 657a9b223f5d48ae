"""CEL text to tree: the grammar that the Kubernetes API server accepts.

Operators are resolved by precedence with a stack, chains of ``&&`` and ``||`` and of members
in loops, so that only brackets and branches recurse; their depth has the limits of cel-go.
Hostile text is an error with a position and neither a crash nor a hang.
"""

from typing import Final, NoReturn

from dray.cel import tree
from dray.cel.depth import make_room
from dray.cel.environment import DEFAULT, Environment
from dray.cel.errors import CelSyntaxError
from dray.cel.lexer import NAME_STARTS, QUOTES, kind_of, position, scan, unrecognized
from dray.cel.literals import LITERALS, LiteralError
from dray.cel.macros import MACRO_NAMES, MacroError, expand
from dray.cel.tree import Expr, Place

MAX_LENGTH: Final = 100_000
"""Code points; cel-go's limit. What is written into an object has a lower one, in bytes."""
MAX_NESTING: Final = 250
"""cel-go's limit on rules inside each other: expressions, relations, sums."""

_RESERVED_WORDS: Final = """
as break const continue else for function if import let loop package namespace return var void while
"""
RESERVED: Final = frozenset(_RESERVED_WORDS.split())
_KEYWORDS: Final = frozenset(("in", "true", "false", "null"))
_CONSTANTS: Final[dict[str, tuple[str, bool | None]]] = {
    "true": ("bool", True),
    "false": ("bool", False),
    "null": ("null", None),
}
_OPERAND: Final = """{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, \
NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"""
_LEVELS: Final = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 1),
    **dict.fromkeys("+-", 2),
    **dict.fromkeys("*/%", 3),
}
_FOLLOWING: Final = {*_LEVELS, "", "&&", "||", "?", ":", ",", ")", "]", "}"}


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
    """A position in the tokens of one text, and how deep the rules of the grammar are there."""

    __slots__ = (
        "_at", "_escapes", "_expressions", "_has_braces", "_relations", "_source", "_starts",
        "_sums", "_texts",
    )  # fmt: skip

    def __init__(self, source: str, environment: Environment) -> None:
        self._escapes = environment.knows_escaped_names
        self._source = source
        self._texts, self._starts = scan(source)
        self._at = 0
        self._has_braces = "{" in self._texts
        self._expressions = self._relations = self._sums = 0

    def whole(self) -> Expr:
        texts = self._texts
        make_room(texts.count("(") + texts.count("[") + texts.count("{") + texts.count("?"))
        node = self._expression()
        if texts[self._at]:
            self._unexpected("<EOF>")
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
                self._fail("max recursion depth exceeded", node.place.start)
            ahead += [(child, depth) for child in tree.children(node)]

    # Errors.

    def _fail(self, reason: str, offset: int) -> NoReturn:
        """Refuse the text for what stands at ``offset``."""
        raise CelSyntaxError(reason, self._source, *position(self._source, offset))

    def _unexpected(self, expected: str = _OPERAND) -> NoReturn:
        """Refuse the token ahead, or a text before it that is no token, as ANTLR would."""
        for text, start in zip(self._texts[: self._at + 1], self._starts, strict=False):
            if not kind_of(text):
                raise unrecognized(self._source, start)
        text = self._texts[self._at]
        seen = f"'{text[:40] or '<EOF>'}'"
        if text and f"'{self._texts[self._at + 1] or '<EOF>'}'" == expected.replace(
            "<EOF>", "'<EOF>'"
        ):
            reason = f"extraneous input {seen} expecting {expected}"
        elif expected == "')'" and text in _FOLLOWING:
            reason = f"missing {expected} at {seen}"
        else:
            reason = f"mismatched input {seen} expecting {expected}"
        self._fail(f"Syntax error: {reason}", self._starts[self._at])

    def _too_deep(self) -> NoReturn:
        self._fail(f"expression recursion limit exceeded: {MAX_NESTING}", self._starts[self._at])

    # Tokens.

    def _accept(self, text: str) -> bool:
        if self._texts[self._at] != text:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if self._texts[self._at] != text:
            self._unexpected(f"'{text}'")
        self._at += 1

    def _identifier(self) -> str:
        """Take a name, which must be ahead."""
        text = self._texts[self._at]
        if text[:1] not in NAME_STARTS or text[-1] in QUOTES or text in _KEYWORDS:
            self._no_identifier(text)
        self._at += 1
        return text

    def _field_name(self) -> str:
        """Take a field's name, which in newer versions may stand in backticks."""
        text = self._texts[self._at]
        if text[:1] != "`" or kind_of(text) != "escaped":
            return self._identifier()
        if not self._escapes:
            self._fail("unsupported syntax: '`'", self._starts[self._at])
        if self._texts[self._at + 1] == "(":
            self._no_identifier(text)
        self._at += 1
        return text[1:-1]

    def _no_identifier(self, text: str) -> NoReturn:
        follows_dot = self._at > 0 and self._texts[self._at - 1] == "."
        if not follows_dot or text in _CONSTANTS or not kind_of(text):
            self._unexpected("IDENTIFIER")
        reason = f"Syntax error: no viable alternative at input '.{text[:40]}'"
        self._fail(reason, self._starts[self._at])

    def _since(self, start: int, point: int) -> Place:
        """The extent from ``start`` to the end of the last token taken."""
        last = self._at - 1
        return Place(start, self._starts[last] + len(self._texts[last]), point, self._source)

    # The grammar.

    def _expression(self) -> Expr:
        """``a || b ? c : d``."""
        self._expressions += 1
        if self._expressions > MAX_NESTING:
            self._too_deep()
        node = self._alternatives()
        if self._texts[self._at] == "?":
            point = self._starts[self._at]
            self._at += 1
            then = self._alternatives()
            self._expect(":")
            otherwise = self._expression()
            place = self._since(node.place.start, point)
            node = tree.Conditional(node, then, otherwise, place=place)
        self._expressions -= 1
        return node

    def _alternatives(self) -> Expr:
        """``a && b || c``, each a relation or what binds closer."""
        relations, sums = self._relations, self._sums
        if relations >= MAX_NESTING or sums >= MAX_NESTING:
            self._too_deep()
        self._relations, self._sums = relations + 1, sums + 1
        node = self._conjunction()
        if self._texts[self._at] == "||":
            terms = [node]
            while self._accept("||"):
                terms.append(self._conjunction())
            node = self._chain("||", terms)
        self._relations, self._sums = relations, sums
        return node

    def _conjunction(self) -> Expr:
        texts = self._texts
        node = self._operand()
        if texts[self._at] in _LEVELS:
            node = self._binary(node)
        if texts[self._at] != "&&":
            return node
        terms = [node]
        while texts[self._at] == "&&":
            self._at += 1
            node = self._operand()
            if texts[self._at] in _LEVELS:
                node = self._binary(node)
            terms.append(node)
        return self._chain("&&", terms)

    def _chain(self, operator: str, terms: list[Expr]) -> Expr:
        """A chain; it is named by the operator at the root of cel-go's balanced tree."""
        middle = terms[(len(terms) - 1) // 2].place.end
        point = self._source.find(operator, middle)
        place = Place(terms[0].place.start, terms[-1].place.end, point, self._source)
        return tree.Logical(operator, tuple(terms), place=place)

    def _binary(self, first: Expr) -> Expr:
        """Relations, sums and products after their first operand."""
        texts, relations, sums = self._texts, self._relations, self._sums
        operands, operators = [first], list[int]()
        while level := _LEVELS.get(texts[self._at]):
            while operators and _LEVELS[texts[operators[-1]]] >= level:
                self._reduce(operands, operators)
            operators.append(self._at)
            self._at += 1
            related = _LEVELS[texts[operators[0]]] == 1
            self._relations = relations + related
            self._sums = sums + len(operators) - related
            if self._relations > MAX_NESTING or self._sums > MAX_NESTING:
                self._too_deep()
            operands.append(self._operand())
        while operators:
            self._reduce(operands, operators)
        self._relations, self._sums = relations, sums
        return operands[0]

    def _reduce(self, operands: list[Expr], operators: list[int]) -> None:
        at, right = operators.pop(), operands.pop()
        left = operands[-1]
        place = Place(left.place.start, right.place.end, self._starts[at], self._source)
        operands[-1] = tree.Binary(self._texts[at], left, right, place=place)

    def _operand(self) -> Expr:
        """Signs, one primary, and what follows it: ``!a.b[c].d(e)``."""
        texts = self._texts
        sign = texts[self._at]
        if sign != "!" and sign != "-":
            return self._members(self._primary())
        first = self._at
        while texts[self._at] == sign:
            self._at += 1
        count = self._at - first
        kind = kind_of(texts[self._at])
        if sign == "-" and count == 1 and kind in ("int", "double"):
            return self._members(self._literal(kind, 1))
        node = self._members(self._negative() if texts[self._at] == "-" else self._primary())
        if count % 2 == 0:
            return node
        start = self._starts[first]
        return tree.Unary(sign, node, place=self._since(start, start))

    def _negative(self) -> Expr:
        """The number after ``!-``: nothing else may have a sign there."""
        kind = kind_of(self._texts[self._at + 1])
        if kind not in ("int", "double"):
            self._unexpected()
        self._at += 1
        return self._literal(kind, 1)

    def _primary(self) -> Expr:
        text = self._texts[self._at]
        if text == "." or (text[:1] in NAME_STARTS and text[-1] not in QUOTES and text != "in"):
            return self._name()
        kind = kind_of(text)
        if kind in LITERALS:
            return self._literal(kind)
        if text not in ("(", "[", "{"):
            self._unexpected()
        start = self._starts[self._at]
        self._at += 1
        if text == "[":
            return self._list(start)
        if text == "{":
            return self._map(start)
        node = self._expression()
        self._expect(")")
        return tree.replace(node, place=self._since(start, node.place.point))

    def _literal(self, kind: str, signs: int = 0) -> Expr:
        """The literal ahead, with the minus before it if it has one."""
        text, start = self._texts[self._at], self._starts[self._at - signs]
        self._at += 1
        try:
            value = LITERALS[kind]("-" + text if signs else text)
        except LiteralError as error:
            self._fail(str(error), start)
        return tree.Literal(kind, value, place=self._since(start, start))

    def _name(self) -> Expr:
        texts, starts, at = self._texts, self._starts, self._at
        start = starts[at]
        name = texts[at]
        dot = ""
        if name == ".":
            dot, at = ".", at + 1
            name = texts[at]
        elif name in _CONSTANTS:
            self._at += 1
            kind, value = _CONSTANTS[name]
            return tree.Literal(kind, value, place=self._since(start, start))
        self._at = at
        self._identifier()
        ahead = texts[at + 1]
        if ahead == "{" or (ahead == "." and self._has_braces):
            message = self._message(dot + name, start)
            if message is not None:
                return message
        if name in RESERVED:
            self._fail(f"reserved identifier: {name}", start)
        if ahead == "(":
            return self._call(dot + name, None, start)
        place = Place(start, starts[at] + len(name), starts[at], self._source)
        return tree.Ident(dot + name, place=place)

    def _members(self, node: Expr) -> Expr:
        """``node`` with every ``.x``, ``.?x``, ``.x(…)``, ``[x]`` and ``[?x]`` that follows."""
        texts, starts, source, start = self._texts, self._starts, self._source, node.place.start
        while True:
            at = self._at
            text = texts[at]
            if text == ".":
                optional = texts[at + 1] == "?"
                self._at = at = at + 1 + optional
                field = self._field_name()
                if texts[at + 1] == "(" and not optional:
                    node = self._call(field, node, start)
                    continue
                end = starts[at] + len(texts[at])
                place = Place(start, end, starts[at - 1 - optional], source)
                node = tree.Select(node, field, optional, place=place)
            elif text == "[":
                optional = texts[at + 1] == "?"
                self._at = at + 1 + optional
                key = self._expression()
                self._expect("]")
                end = starts[self._at - 1] + 1
                place = Place(start, end, starts[at], source)
                node = tree.Index(node, key, optional, place=place)
            else:
                return node

    def _call(self, name: str, target: Expr | None, start: int) -> Expr:
        point = self._starts[self._at]
        self._at += 1
        arguments = list[Expr]()
        if not self._accept(")"):
            arguments.append(self._expression())
            while self._accept(","):
                arguments.append(self._expression())
            self._expect(")")
        call = tree.Call(name, tuple(arguments), target, place=self._since(start, point))
        if name not in MACRO_NAMES:
            return call
        try:
            return expand(call)
        except MacroError as error:
            raise CelSyntaxError(
                str(error), self._source, error.place.line, error.place.column
            ) from None

    def _list(self, start: int) -> Expr:
        items = list[tree.ListItem]()
        self._lone_comma("]")
        while not self._accept("]"):
            optional = self._accept("?")
            value = self._expression()
            items.append(tree.ListItem(value, optional, place=value.place))
            self._separator("]")
        return tree.ListLiteral(tuple(items), place=self._since(start, start))

    def _map(self, start: int) -> Expr:
        entries = list[tree.MapEntry]()
        self._lone_comma("}")
        while not self._accept("}"):
            optional = self._accept("?")
            key = self._expression()
            point = self._starts[self._at]
            self._expect(":")
            value = self._expression()
            place = self._since(key.place.start, point)
            entries.append(tree.MapEntry(key, value, optional, place=place))
            self._separator("}")
        return tree.MapLiteral(tuple(entries), place=self._since(start, start))

    def _message(self, name: str, start: int) -> Expr | None:
        """The message whose name's first part was just taken, or None where none follows."""
        texts, before = self._texts, self._at
        while texts[self._at] == "." and kind_of(texts[self._at + 1]) == "ident":
            if texts[self._at + 1] in _KEYWORDS:
                break
            name += "." + texts[self._at + 1]
            self._at += 2
        if texts[self._at] != "{":
            self._at = before
            return None
        point = self._starts[self._at]
        self._at += 1
        fields = self._fields()
        return tree.Message(name, tuple(fields), place=self._since(start, point))

    def _fields(self) -> list[tree.MessageField]:
        fields = list[tree.MessageField]()
        self._lone_comma("}")
        while not self._accept("}"):
            optional = self._accept("?")
            start = self._starts[self._at]
            name = self._field_name()
            point = self._starts[self._at]
            self._expect(":")
            value = self._expression()
            place = self._since(start, point)
            fields.append(tree.MessageField(name, value, optional, place=place))
            self._separator("}")
        return fields

    def _lone_comma(self, closing: str) -> None:
        """The grammar's trailing comma may stand where nothing precedes it: ``[,]``."""
        if self._texts[self._at] == "," and self._texts[self._at + 1] == closing:
            self._at += 1

    def _separator(self, closing: str) -> None:
        """A comma, which may also stand before the closing bracket, or that bracket ahead."""
        if not self._accept(",") and self._texts[self._at] != closing:
            self._unexpected(f"{{'{closing}', ','}}")


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
