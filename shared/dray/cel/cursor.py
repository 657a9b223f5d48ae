"""A position in the tokens of a text, and the places and errors that belong to it."""

import re
from bisect import bisect_right
from typing import Final, NoReturn

from dray.cel.errors import CelSyntaxError
from dray.cel.lexer import Token, tokens
from dray.cel.tree import Place

KEYWORDS: Final = frozenset(("in", "true", "false", "null"))
"""Words that are tokens of their own and never names."""


class Cursor:
    """What a parser reads from."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = tokens(source)
        self.at = 0
        self._lines = [0, *(match.end() for match in re.finditer("\n", source))]

    @property
    def token(self) -> Token:
        """The token ahead."""
        return self.tokens[self.at]

    def next(self) -> Token:
        """Take the token ahead."""
        token = self.tokens[self.at]
        self.at += 1
        return token

    def accept(self, text: str) -> Token | None:
        """Take the operator ``text`` if it is ahead."""
        token = self.tokens[self.at]
        if token.text != text or token.kind != "operator":
            return None
        self.at += 1
        return token

    def expect(self, text: str) -> Token:
        """Take the operator ``text``, which must be ahead."""
        return self.accept(text) or self.unexpected(text)

    def identifier(self) -> Token:
        """Take a name, which must be ahead."""
        token = self.token
        if token.kind != "ident" or token.text in KEYWORDS:
            self.unexpected("an identifier")
        return self.next()

    def fail(self, reason: str, offset: int) -> NoReturn:
        """Refuse the text for what stands at ``offset``."""
        place = self.place(offset, offset, offset)
        raise CelSyntaxError(reason, self.source, place.line, place.column)

    def unexpected(self, expected: str = "") -> NoReturn:
        """Refuse the token ahead."""
        seen = f"'{self.token.text[:40]}'" if self.token.kind != "end" else "end of text"
        wanted = f", expected {expected if ' ' in expected else repr(expected)}" if expected else ""
        self.fail(f"Syntax error: unexpected {seen}{wanted}", self.token.start)

    def place(self, start: int, end: int, point: int) -> Place:
        """An extent, with line and column of ``point``; all are offsets."""
        line = bisect_right(self._lines, point)
        return Place(start, end, line, point - self._lines[line - 1] + 1)

    def since(self, start: int, point: int) -> Place:
        """The extent from ``start`` to the end of the last token taken."""
        return self.place(start, self.tokens[self.at - 1].end, point)
