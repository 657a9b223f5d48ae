"""Ranges of sizes and costs, in unsigned 64 bits that stop at the largest, as cel-go counts."""

import math
from typing import Final, NamedTuple

MOST: Final = 2**64 - 1
_TWO_64: Final = 2.0**64


class Span(NamedTuple):
    """From ``low`` to ``high``, both included."""

    low: int
    high: int

    def plus(self, other: "Span") -> "Span":
        return Span(min(self.low + other.low, MOST), min(self.high + other.high, MOST))

    def times(self, other: "Span") -> "Span":
        return Span(min(self.low * other.low, MOST), min(self.high * other.high, MOST))

    def scaled(self, factor: float) -> "Span":
        """Multiplied by ``factor`` and rounded up."""
        return Span(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: "Span") -> "Span":
        return Span(min(self.low, other.low), max(self.high, other.high))


def fixed(value: int) -> Span:
    """Exactly ``value``, modulo 2**64 as Go computes."""
    return Span(value & MOST, value & MOST)


def _scaled(value: int, factor: float) -> int:
    number = float(value)
    if number > 0 and factor > 0 and number > _TWO_64 / factor:
        return MOST
    product = math.ceil(number * factor)
    return MOST if product >= _TWO_64 else product


ZERO: Final = Span(0, 0)
ONE: Final = Span(1, 1)
UNKNOWN: Final = Span(0, MOST)
NOTHING_YET: Final = Span(MOST, 0)
"""What a union starts from."""
