"""What an expression can be made of: the table of ``operations.txt``."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Type = tuple[str, ...] | tuple["str | Type", ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """What stands for ``{0}``: a type, and the variables it may read."""

    type: Type
    variables: tuple[tuple[str, Type], ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """One overload of a function, an operator or a macro."""

    tag: str
    result: Type
    template: str
    arguments: tuple[Argument, ...]

    @property
    def is_loose(self) -> bool:
        """Whether it needs parentheses inside another expression."""
        return self.template.startswith(("{0} ", "{1} ", "!", "-", "type({0}) "))


def parse_type(text: str) -> Type:
    """``map<K,list<int>>`` as ``("map", ("K",), ("list", ("int",)))``."""
    name, _, rest = text.strip().partition("<")
    if not rest:
        return (name,)
    parts, depth, start, inside = [], 0, 0, rest[: rest.rindex(">")]
    for at, char in enumerate(inside):
        depth += (char == "<") - (char == ">")
        if char == "," and not depth:
            parts.append(inside[start:at])
            start = at + 1
    return (name, *(parse_type(part) for part in (*parts, inside[start:])))


def _split(text: str) -> list[str]:
    parts, depth, found = [], 0, ""
    for char in text:
        depth += (char == "<") - (char == ">")
        if char == "," and not depth:
            parts.append(found)
            found = ""
        else:
            found += char
    return [part.strip() for part in (*parts, found) if part.strip()]


def _argument(text: str) -> Argument:
    *bound, result = text.split(":")
    variables = []
    for part in bound:
        kind, _, name = part.partition("$")
        variables.append(("$" + name, parse_type(kind)))
    return Argument(parse_type(result), tuple(variables))


def _operation(tag: str, line: str) -> Operation:
    # A template may hold " || ", so the fields are cut at the ends.
    result, _, rest = line.strip().partition(" | ")
    template, _, arguments = rest.rpartition(" |")
    parsed = tuple(_argument(part) for part in _split(arguments))
    return Operation(tag, parse_type(result), template, parsed)


def _read() -> Iterator[Operation]:
    tag = ""
    for line in (Path(__file__).with_name("operations.txt")).read_text("utf-8").splitlines():
        if line.startswith("["):
            tag = line.strip("[]")
        elif line and not line.startswith("#"):
            yield _operation(tag, line)


OPERATIONS = tuple(_read())
