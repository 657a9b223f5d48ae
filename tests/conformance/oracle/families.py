"""Features that are not operations: literals, access to the device, errors of every kind, limits.

Each gives an expression that decides the outcome, and its type; a type of None says that it is a
whole selector, to be used as it is. Most stand in ``families.txt``.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from devices import DOMAINS
from grammar import Maker
from leaves import LITERALS, WORDS, bytes_literal, quoted
from operations import Type, parse_type

Subject = tuple[str, Type | None]
LISTS: Final = "list attributes"
"""Asked only of servers whose attributes may have several values."""

_CONTROL: Final = {
    "LF": "\n", "CR": "\r", "FF": "\f", "TAB": "\t", "NUL": "\x00", "BOM": "\ufeff",
}  # fmt: skip
_RESERVED: Final = (
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
    "package", "namespace", "return", "var", "void", "while", "in", "null", "true", "__x__",
)  # fmt: skip
_FAILING: Final = (
    "1 / 0 == 1", 'device.attributes["«driver»"].nope', "[1][5] == 1", "{'a': 1}['b'] == 1",
    "quantity('x').isInteger()", "semver('x') == semver('1.0.0')", "optional.none().value()",
    "int('x') == 1", "9223372036854775807 + 1 > 0", "ip('x').family() == 4", "1 % 0 == 0",
    'device.attributes["«driver»"].nope > 1', 'device.attributes["«driver»"].nope == "x"',
    "dyn(1)", "dyn('a') < 1",
)  # fmt: skip
_PIECES: Final = "()[]{}.,:?!&|=<>'\"\\ `@#$%^~;+-*/ 0a\n\u00e9"
_NUMBERS: Final = {
    "int": ["0xffffffffffffffff", "9223372036854775808", "007", "-0x8000000000000000", "0X1F"],
    "uint": ["18446744073709551616u", "0xFFFFFFFFFFFFFFFFu", "00u", "0x0u"],
    "double": ["1e400", "1.0e-400", "0.1e+2", "1e5", "123456789.125", "4.9e-324", "1e-7"],
}
_GAPS: Final = (" // why\n", "\n\n\t ", "//é\n", " //\r\n", "\f ", "// \"'\n", "\r")


def _filled(maker: Maker, text: str) -> str:
    """``text`` with something for each of its placeholders."""
    rng = maker.rng
    names = ["model", "count", "ecc", "ver", "k", "nope"]
    fixed = {
        "driver": maker.driver,
        "domain": rng.choice([maker.driver, maker.driver, DOMAINS[0], "no.such.domain"]),
        "name": rng.choice(names),
        "amount": rng.choice(["memory", "cores", "tflops", "nope"]),
        "word": rng.choice(_RESERVED),
        "size": str(rng.randint(1, 9)),
        **_CONTROL,
    }
    if "«other»" in text:
        fixed["other"] = maker.make(("bool",), 1)
    if "«fails»" in text:
        text = text.replace("«fails»", rng.choice(_FAILING))

    def fill(match: re.Match[str]) -> str:
        wanted = match[1]
        if wanted in fixed:
            return fixed[wanted]
        kind, _, where = wanted.partition(" ")
        if where or kind == "attribute":
            return maker.attribute(kind if where else "any")
        if wanted in ("leaf", "any"):
            made = maker.leaf if wanted == "leaf" else maker.make_small
            return made(maker.some_type())
        return maker.make_small((wanted,))

    return re.sub("«([^»]+)»", fill, text)


def _number(maker: Maker) -> Subject:
    kind = maker.rng.choice(["int", "uint", "double"])
    choices = _NUMBERS[kind] if maker.rng.random() < 0.35 else LITERALS[kind]
    return maker.rng.choice(choices), (kind,)


def _string(maker: Maker) -> Subject:
    if maker.rng.random() < 0.2:
        return _listed(maker, "string literals")
    return quoted(maker.rng.choice(WORDS), maker.rng), ("string",)


def _bytes(maker: Maker) -> Subject:
    return bytes_literal(maker.rng.choice(WORDS), maker.rng), ("bytes",)


def _comment(maker: Maker) -> Subject:
    kind = maker.some_type("O")
    relation = maker.rng.choice(["==", "!=", "<=", ">"])
    parts = [maker.leaf(kind), relation, maker.leaf(kind)]
    return maker.rng.choice(_GAPS).join(parts), ("bool",)


def _aggregate(maker: Maker) -> Subject:
    roll = maker.rng.random()
    if roll < 0.3:
        return _listed(maker, "list and map literals")
    kind: Type = ("list", maker.some_type())
    if roll < 0.65:
        kind = ("map", maker.some_type("K"), maker.some_type())
    return maker.leaf(kind), kind


def _attributes(maker: Maker) -> Subject:
    if maker.rng.random() < 0.55:
        kind = maker.rng.choice(["string", "int", "bool", "semver"])
        return maker.leaf_of_device(kind), (kind,)
    return _listed(maker, "device.attributes")


def _capacities(maker: Maker) -> Subject:
    if maker.rng.random() < 0.5:
        return maker.capacity(), ("quantity",)
    return _listed(maker, "device.capacity")


def _syntax(maker: Maker) -> Subject:
    rng = maker.rng
    if rng.random() < 0.4:
        return _listed(maker, "syntax errors")
    text = maker.make(("bool",), 2)
    at = rng.randrange(len(text))
    if rng.random() < 0.5:
        return text[:at] + text[at + 1 :], None
    return text[:at] + rng.choice(_PIECES) + text[at:], None


def _limits(maker: Maker) -> Subject:
    rng = maker.rng
    size = rng.randint(1, 9)
    small = "[" + ", ".join(map(str, range(size))) + "]"
    nested = "true"
    for depth in range(rng.randint(2, 5)):
        macro = rng.choice(["all", "all", "exists", "map", "filter"])
        nested = f"{small}.{macro}(i{depth}, {nested})"
        if macro in ("map", "filter"):
            nested = f"({nested}).size() >= 0"
    repeated = {
        "size": str(size),
        "small": small,
        "nested": nested,
        "text": "a" * rng.choice([10, 500, 5000, 10100, 10300]),
        "attribute": maker.attribute("string"),
    }
    text, kind = _listed(maker, "limits", filled=False)
    for name, found in repeated.items():
        text = text.replace(f"«{name}»", found)
    return re.sub(r"«([^»]*?)×(\d+)»", lambda m: m[1] * (size * int(m[2])), text), kind


def _listed(maker: Maker, tag: str, *, filled: bool = True) -> Subject:
    kind, text = maker.rng.choice(_LISTED[tag])
    return (_filled(maker, text) if filled else text), None if kind == "-" else parse_type(kind)


def _read() -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    tag = ""
    for line in Path(__file__).with_name("families.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            tag = line.strip("[]")
        elif line and not line.startswith("#"):
            kind, _, text = line.partition(" | ")
            found.setdefault(tag, []).append((kind, text))
    return found


_LISTED: Final = _read()


def _of_list(tag: str) -> Callable[[Maker], Subject]:
    return lambda maker: _listed(maker, tag)


FAMILIES: Final[dict[str, Callable[[Maker], Subject]]] = {
    "number literals": _number,
    "string literals": _string,
    "bytes literals": _bytes,
    "comments and spaces": _comment,
    "list and map literals": _aggregate,
    "device.attributes": _attributes,
    "device.capacity": _capacities,
    "syntax errors": _syntax,
    "limits": _limits,
    **{
        tag: _of_list(tag)
        for tag in (
            "device.driver",
            "device.allowMultipleAllocations",
            "unknown names",
            "reserved words",
            "type of the result",
            "checked literals",
            "absorbed errors",
            LISTS,
        )
    },
}
