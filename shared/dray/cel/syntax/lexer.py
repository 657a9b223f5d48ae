"""Text to tokens, by the token rules of the CEL grammar.

One regular expression cuts the whole text in one call. The first and last character of a token
determine its kind. A character that begins no token becomes a token of its own. The parser refuses
it with its position.
"""

import re
from itertools import accumulate, compress
from typing import Final, NamedTuple

from dray.cel.errors import CelSyntaxError

_ESCAPE = (
    r"""\\(?:[abfnrtv"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"""
)
_TOKEN: Final = re.compile(
    rf"""
    [ \t\r\n\f]+|//[^\n]*
  | (?![bB]?[rR]?["'])[_a-zA-Z][_a-zA-Z0-9]*
  | \.(?![0-9])|[()\[\],?:{{}}]
  | [bB]?(?:
        [rR](?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|\"[^\"\r\n]*\"|'[^'\r\n]*')
      | \"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"|'''(?:{_ESCAPE}|[^\\])*?'''
      | \"(?>(?:[^\\\"\r\n]++|{_ESCAPE})*)\"|'(?>(?:[^\\'\r\n]++|{_ESCAPE})*)')
  | [0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?
  | 0x[0-9a-fA-F]+[uU]?|[0-9]+[uU]?
  | [_a-zA-Z][_a-zA-Z0-9]*|&&|\|\||==|!=|<=|>=|`[a-zA-Z0-9_.\-/ ]+`
  | [\s\S]
    """,
    re.VERBOSE,
)
_SPACE: Final = frozenset(" \t\r\n\f")
QUOTES: Final = "\"'"
NAME_STARTS: Final = frozenset("_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_OPERATORS: Final = frozenset("-+*/%!<>?:.,()[]{}") | {"&&", "||", "==", "!=", "<=", ">="}
_DIGITS: Final = frozenset("0123456789")


class Token(NamedTuple):
    """``kind`` is string, bytes, double, uint, int, ident, escaped, operator or end."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def scan(source: str) -> tuple[list[str], list[int]]:
    """Texts and offsets of the tokens of ``source``; the last is empty and at the end.

    Nothing is refused here: ``kind_of`` is empty for texts that are not tokens.
    """
    texts: list[str] = _TOKEN.findall(source)
    starts = [0, *accumulate(map(len, texts))]
    space = _SPACE
    kept = [text[0] not in space and text[:2] != "//" for text in texts]
    return [*compress(texts, kept), ""], [*compress(starts, kept), len(source)]


def kind_of(text: str) -> str:
    """The kind of the token ``text``; empty for a character that begins no token."""
    if not text:
        return "end"
    if text in _OPERATORS:
        return "operator"
    first, last = text[0], text[-1]
    if last in QUOTES:
        if len(text) == 1:
            return ""
        return "bytes" if first in "bB" else "string"
    if first in NAME_STARTS:
        return "ident"
    if first in _DIGITS or first == ".":
        return _number(text)
    return "escaped" if first == "`" and len(text) > 2 else ""


def _number(text: str) -> str:
    if text[-1] in "uU":
        return "uint"
    is_double = "." in text or (text[:2] != "0x" and ("e" in text or "E" in text))
    return "double" if is_double else "int"


def tokens(source: str) -> list[Token]:
    """All tokens of ``source``, then one of kind ``end``.

    Raises:
        CelSyntaxError: a character that begins no token, or a string that does not end.
    """
    texts, starts = scan(source)
    found = [Token(kind_of(t), t, start) for t, start in zip(texts, starts, strict=True)]
    for token in found:
        if not token.kind:
            raise unrecognized(source, token.start)
    return found


def unrecognized(source: str, start: int) -> CelSyntaxError:
    """The error to raise at a character that begins no token."""
    shown = source[start : start + 16].split("\n")[0]
    reason = f"Syntax error: token recognition error at: '{shown}'"
    return CelSyntaxError(reason, source, *position(source, start))


def position(source: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of an offset."""
    line_start = source.rfind("\n", 0, offset) + 1
    return source.count("\n", 0, offset) + 1, offset - line_start + 1
