"""Text to tokens, by the token rules of the CEL grammar."""

import re
from dataclasses import dataclass

from dray.cel.errors import CelSyntaxError

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+|//[^\n]*)
  | (?P<bytes>[bB](?:
        [rR](?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|\"[^\"\r\n]*\"|'[^'\r\n]*')
      | \"{3}(?:\\[\s\S]|[^\\])*?\"{3}|'{3}(?:\\[\s\S]|[^\\])*?'{3}
      | \"(?:\\.|[^\\\"\r\n])*\"|'(?:\\.|[^\\'\r\n])*'))
  | (?P<string>
        [rR](?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|\"[^\"\r\n]*\"|'[^'\r\n]*')
      | \"{3}(?:\\[\s\S]|[^\\])*?\"{3}|'{3}(?:\\[\s\S]|[^\\])*?'{3}
      | \"(?:\\.|[^\\\"\r\n])*\"|'(?:\\.|[^\\'\r\n])*')
  | (?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+
      |\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
  | (?P<int>0x[0-9a-fA-F]+|[0-9]+)
  | (?P<ident>[_a-zA-Z][_a-zA-Z0-9]*)
  | (?P<operator>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is string, bytes, double, uint, int, ident, operator or end."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def tokens(source: str) -> list[Token]:
    """All tokens of ``source``, then one of kind ``end``.

    Raises:
        CelSyntaxError: a character that begins no token, or a string that does not end.
    """
    found: list[Token] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            line, column = position(source, at)
            raise CelSyntaxError(
                f"Syntax error: token recognition error at: {source[at : at + 16]!r}",
                source,
                line,
                column,
            )
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup or "", match.group(), at))
        at = match.end()
    found.append(Token("end", "", len(source)))
    return found


def position(source: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of an offset."""
    line_start = source.rfind("\n", 0, offset) + 1
    return source.count("\n", 0, offset) + 1, offset - line_start + 1
