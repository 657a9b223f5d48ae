"""Literals: of every type, ordinary and at the edges, and texts that functions parse."""

import random
from pathlib import Path
from typing import Final


def _read() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("texts.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            found[line.strip("[]")] = kind = []
        elif line and not line.startswith("#"):
            kind.append(line)
    return found


LITERALS: Final = _read()
"""By type; and by what a function parses, such as ``regex``, good and bad."""
PLAIN: Final = ("int", "uint", "double", "bool", "null", "type")
"""Types of LITERALS; the others are texts for functions."""

WORDS: Final = [
    "H100", "A100", "L40S", "nvidia", "a,b,c", "a", "b", "k", "x", "", "é", "日本", "😀",
    "Hello World",
    "  pad ", "A", "aaa", "1Gi", "1.2.3", "10.0.0.7", "true", "7", "-3", "1.5", "z9", "\t", "\n",
    "a\nb", 'q"q', "it's", "b\\c", "ﬀ", "ß", "İ", "a\x00b", "  ", "NaN", "inf", "1e3",
    "0x10", "TRUE", "t", "false", "one.two.three", "ÀÉ", "\u200b", "9223372036854775808",
]  # fmt: skip


def quoted(word: str, rng: random.Random) -> str:
    """A string literal for ``word``, in one of CEL's spellings."""
    style = rng.random()
    if style < 0.6:
        return '"' + _escaped(word, '"') + '"'
    if style < 0.75:
        return "'" + _escaped(word, "'") + "'"
    if style < 0.83 and "\\" not in word and "\x00" not in word:
        mark = rng.choice(['"""', "'''"])
        if mark[0] not in word:
            return mark + word + mark
    if style < 0.9 and not any(c in word for c in '"\n\r\x00'):
        return rng.choice("rR") + '"' + word + '"'
    return '"' + "".join(_odd_escape(char, rng) for char in word) + '"'


def bytes_literal(word: str, rng: random.Random) -> str:
    """A bytes literal for the UTF-8 of ``word``, or of some bytes that are not UTF-8."""
    if rng.random() < 0.2:
        return rng.choice(['b"\\xff\\x00"', 'b"\\377"', "b'\\x80abc'", "b'''a'''"])
    if rng.random() < 0.2:
        return 'b"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"'
    return rng.choice("bB") + '"' + _escaped(word, '"') + '"'


def _escaped(word: str, quote: str) -> str:
    plain = {"\\": "\\\\", quote: "\\" + quote, "\n": "\\n", "\t": "\\t", "\x00": "\\000"}
    return "".join(plain.get(char, char) for char in word)


def _odd_escape(char: str, rng: random.Random) -> str:
    forms = [f"\\U{ord(char):08x}"]
    if ord(char) < 0x10000:
        forms.append(f"\\u{ord(char):04X}")
    if ord(char) < 0x100:
        forms += [f"\\x{ord(char):02x}", f"\\X{ord(char):02X}", f"\\{ord(char):03o}"]
    if char in "abfnrtv\"'`?":
        forms.append(char if char in "abfnrtv" else "\\" + char)
    return rng.choice(forms)
