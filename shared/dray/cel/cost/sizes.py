"""Worst-case sizes of values: literals, containers, and the parts of a device as DRA declares them.

Ranges are unsigned 64-bit numbers that saturate at the maximum, as in cel-go.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from dray.cel.syntax import tree
from dray.cel.syntax.tree import SyntaxNode

MOST: Final = 2**64 - 1
_TWO_64: Final = 2.0**64


class SizeRange(NamedTuple):
    """From ``low`` to ``high``, both included."""

    low: int
    high: int

    def plus(self, other: "SizeRange") -> "SizeRange":
        return SizeRange(min(self.low + other.low, MOST), min(self.high + other.high, MOST))

    def times(self, other: "SizeRange") -> "SizeRange":
        return SizeRange(min(self.low * other.low, MOST), min(self.high * other.high, MOST))

    def scaled(self, factor: float) -> "SizeRange":
        """Multiplied by ``factor`` and rounded up."""
        return SizeRange(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: "SizeRange") -> "SizeRange":
        return SizeRange(min(self.low, other.low), max(self.high, other.high))


def fixed(value: int) -> SizeRange:
    """Exactly ``value``, modulo 2**64 as in Go."""
    return SizeRange(value & MOST, value & MOST)


def _scaled(value: int, factor: float) -> int:
    number = float(value)
    if number > 0 and factor > 0 and number > _TWO_64 / factor:
        return MOST
    product = math.ceil(number * factor)
    return MOST if product >= _TWO_64 else product


ZERO: Final = SizeRange(0, 0)
ONE: Final = SizeRange(1, 1)
UNKNOWN: Final = SizeRange(0, MOST)
NOTHING_YET: Final = SizeRange(MOST, 0)
"""The start of a union of ranges."""


class Path:
    """Steps from a variable. As in a Go slice, an append may overwrite that of another path."""

    __slots__ = ("_length", "_memory", "_room")

    def __init__(self, memory: list[str], room: int, length: int) -> None:
        self._memory, self._room, self._length = memory, room, length

    def to(self, step: str) -> "Path":
        """This path extended by one step. It shares the memory if there is room."""
        if self._length < self._room:
            memory, room = self._memory, self._room
        else:
            memory, room = self._memory[: self._length], max(1, 2 * self._room)
        del memory[self._length + 1 :]
        memory[self._length : self._length + 1] = [step]
        return Path(memory, room, self._length + 1)

    @property
    def steps(self) -> list[str]:
        return self._memory[: self._length]


class Entries(NamedTuple):
    """Sizes of the keys and values of a container."""

    is_list: bool
    key: SizeRange
    value: SizeRange

    def union(self, other: "Entries | None") -> "Entries | None":
        if other is None:
            return None
        return Entries(self.is_list, self.key.union(other.key), self.value.union(other.value))


def written_size(node: SyntaxNode) -> SizeRange | None:
    """The size of a literal."""
    match node:
        case tree.Literal(value=str() | bytes() as value):
            return fixed(len(value))
        case tree.Literal():
            return ONE
        case tree.ListLiteral():
            return fixed(len(node.items))
        case tree.MapLiteral():
            return fixed(len(node.entries))
        case _:
            return None


_DRIVER_LENGTH: Final = 63
_DOMAIN_LENGTH: Final = 63
_NAME_LENGTH: Final = 32
_MOST_ENTRIES: Final = 32
"""``ResourceSliceMaxAttributesAndCapacitiesPerDevice``."""
_VALUE_LENGTH: Final = 64
"""``DeviceAttributeMaxValueLength``, even if attributes may be lists of up to 48 values."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The largest size of a value, and the parts below it by the steps of a path."""

    most: int
    steps: "dict[str, _Part]"
    names: "_Part | None" = None
    """The part for any other name."""


_VALUE: Final = _Part(_VALUE_LENGTH, {})
_NAMES: Final = {"@keys": _Part(_NAME_LENGTH, {})}
_OF_DOMAIN: Final = _Part(_MOST_ENTRIES, {**_NAMES, "@values": _VALUE, "@items": _VALUE}, _VALUE)
_AMOUNT: Final = _Part(0, {})
_AMOUNTS: Final = _Part(_MOST_ENTRIES, {**_NAMES, "@values": _AMOUNT, "@items": _AMOUNT})
_DOMAINS: Final = {"@keys": _Part(_DOMAIN_LENGTH, {})}
_DEVICE: Final = _Part(
    0,
    {
        "driver": _Part(_DRIVER_LENGTH, {}),
        "attributes": _Part(
            _MOST_ENTRIES, {**_DOMAINS, "@values": _OF_DOMAIN, "@items": _OF_DOMAIN}
        ),
        "capacity": _Part(_MOST_ENTRIES, {**_DOMAINS, "@values": _AMOUNTS, "@items": _AMOUNTS}),
        "allowMultipleAllocations": _Part(1, {}),
    },
)


def declared_size(path: list[str]) -> SizeRange | None:
    """The declared size of the value at ``path`` from a variable; None if there is none.

    Steps are names of fields, ``@keys``, ``@values``, ``@items`` and ``@indices``.
    """
    if not path or path[0] != "device":
        return None
    part: _Part | None = _DEVICE
    for step in path[1:]:
        if part is None:
            return None
        known = part.steps.get(step)
        part = known if known or step in ("@keys", "@values", "@items") else part.names
    return None if part is None else SizeRange(0, part.most)
