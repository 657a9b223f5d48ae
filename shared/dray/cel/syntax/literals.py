"""The values of literal tokens, and literals for values."""

import re
from collections.abc import Callable
from typing import Final

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1

_ESCAPE = re.compile(
    r"\\(?:[abfnrtv\"'`?\\]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|)"
)
_SIMPLE = {
    "a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11,
    '"': 34, "'": 39, "`": 96, "?": 63, "\\": 92,
}  # fmt: skip
_WRITTEN = {code: "\\" + name for name, code in _SIMPLE.items() if name not in "'`?"}


class LiteralError(ValueError):
    """The token has the form of a literal, but has no value."""


def _string_value(text: str) -> str:
    """The value of a string token.

    Raises:
        LiteralError: a wrong escape.
    """
    if "\\" not in text and text[0] == text[-1] and text[1] != text[0] and "\r" not in text:
        return text[1:-1]
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body
    return "".join(map(chr, _code_points(body, in_bytes=False)))


def _bytes_value(text: str) -> bytes:
    """The value of a bytes token: its characters in UTF-8, escapes as single bytes.

    Raises:
        LiteralError: a wrong escape, such as ``\\u`` and ``\\U``.
    """
    body, raw = _body(text[1:])
    if raw or "\\" not in body:
        return body.encode()
    return b"".join(
        bytes([-code]) if code < 0 else chr(code).encode()
        for code in _code_points(body, in_bytes=True)
    )


def _int_value(text: str) -> int:
    """The value of an int token, with its sign if it has one.

    Raises:
        LiteralError: more than 64 bits.
    """
    number = _whole(text)
    if not INT_MIN <= number <= INT_MAX:
        raise LiteralError("invalid int literal")
    return number


def _uint_value(text: str) -> int:
    """The value of a uint token with its suffix.

    Raises:
        LiteralError: more than 64 bits.
    """
    number = _whole(text[:-1])
    if number > UINT_MAX:
        raise LiteralError("invalid uint literal")
    return number


def _double_value(text: str) -> float:
    """The value of a double token.

    Raises:
        LiteralError: it exceeds the largest double.
    """
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise LiteralError("invalid double literal")
    return number


LITERALS: Final[dict[str, Callable[[str], int | float | str | bytes]]] = {
    "int": _int_value,
    "uint": _uint_value,
    "double": _double_value,
    "string": _string_value,
    "bytes": _bytes_value,
}
"""The value of a token, by its kind."""


def quoted(value: str) -> str:
    """``value`` as a string literal. No content can end the literal early."""
    return '"' + "".join(_written(ord(char)) for char in value) + '"'


def quoted_bytes(value: bytes) -> str:
    """``value`` as a bytes literal."""
    shown = (_written(code) if code < 127 else f"\\x{code:02x}" for code in value)
    return 'b"' + "".join(shown) + '"'


def _written(code: int) -> str:
    if code in _WRITTEN:
        return _WRITTEN[code]
    return chr(code) if code >= 32 and code != 127 else f"\\x{code:02x}"


def _whole(text: str) -> int:
    digits = text.removeprefix("-")
    if len(digits) > 400:
        raise LiteralError("invalid int literal")
    number = int(digits, 16) if digits.startswith("0x") else int(digits)
    return -number if text.startswith("-") else number


def _body(text: str) -> tuple[str, bool]:
    raw = text[0] in "rR"
    text = text[1:] if raw else text
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    body = text[width:-width]
    return (body if width == 1 else body.replace("\r\n", "\n").replace("\r", "\n")), raw


def _code_points(body: str, *, in_bytes: bool) -> list[int]:
    """The code points. In bytes, a byte that is written as a number is that number, negated."""
    found: list[int] = []
    at = 0
    for match in _ESCAPE.finditer(body):
        found.extend(map(ord, body[at : match.start()]))
        found.append(_escaped(match.group()[1:], in_bytes=in_bytes))
        at = match.end()
    found.extend(map(ord, body[at:]))
    return found


def _escaped(name: str, *, in_bytes: bool) -> int:
    if name in _SIMPLE:
        return _SIMPLE[name]
    if not name or (in_bytes and name[0] in "uU"):
        raise LiteralError("unable to unescape string")
    code = int(name, 8) if name[0].isdigit() else int(name[1:], 16)
    if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        raise LiteralError("invalid unicode code point")
    # Zero can't be negated, but the character encodes to the same byte.
    return -code if in_bytes else code
