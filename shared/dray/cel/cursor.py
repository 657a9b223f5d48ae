"""A position in the tokens of a text, and the errors that belong to it."""

from typing import Final, NoReturn

from dray.cel.environment import Environment
from dray.cel.errors import CelSyntaxError
from dray.cel.lexer import NAME_STARTS, QUOTES, kind_of, position, scan, unrecognized
from dray.cel.tree import Place

MAX_NESTING: Final = 250
"""cel-go's limit on rules inside each other: expressions, relations, sums."""

KEYWORDS: Final = frozenset(("in", "true", "false", "null"))
"""Words that are tokens of their own and never names."""
CONSTANTS: Final[dict[str, tuple[str, bool | None]]] = {
    "true": ("bool", True),
    "false": ("bool", False),
    "null": ("null", None),
}
"""Kind and value of the words that are literals."""
_OPERAND: Final = """{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, \
NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"""
LEVELS: Final = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 1),
    **dict.fromkeys("+-", 2),
    **dict.fromkeys("*/%", 3),
}
"""How close the operators between two operands bind, ``&&`` and ``||`` apart."""
_FOLLOWING: Final = {*LEVELS, "", "&&", "||", "?", ":", ",", ")", "]", "}"}


class Cursor:
    """What a parser reads from, and how deep the rules of the grammar are there."""

    __slots__ = (
        "at", "escapes", "expressions", "has_braces", "relations", "source", "starts", "sums",
        "texts",
    )  # fmt: skip

    def __init__(self, source: str, environment: Environment) -> None:
        self.source = source
        self.texts, self.starts = scan(source)
        self.at = 0
        """Of the token ahead."""
        self.escapes = environment.knows_escaped_names
        self.has_braces = "{" in self.texts
        self.expressions = self.relations = self.sums = 0

    def fail(self, reason: str, offset: int) -> NoReturn:
        """Refuse the text for what stands at ``offset``."""
        raise CelSyntaxError(reason, self.source, *position(self.source, offset))

    def unexpected(self, expected: str = _OPERAND) -> NoReturn:
        """Refuse the token ahead, or a text before it that is no token, as ANTLR would."""
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
        """Take a name, which must be ahead."""
        text = self.texts[self.at]
        if text[:1] not in NAME_STARTS or text[-1] in QUOTES or text in KEYWORDS:
            self._no_identifier(text)
        self.at += 1
        return text

    def field_name(self) -> str:
        """Take a field's name, which in newer versions may stand in backticks."""
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
        if not follows_dot or text in CONSTANTS or not kind_of(text):
            self.unexpected("IDENTIFIER")
        reason = f"Syntax error: no viable alternative at input '.{text[:40]}'"
        self.fail(reason, self.starts[self.at])

    def since(self, start: int, point: int) -> Place:
        """The extent from ``start`` to the end of the last token taken."""
        last = self.at - 1
        return Place(start, self.starts[last] + len(self.texts[last]), point, self.source)
