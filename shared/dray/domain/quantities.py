"""Kubernetes quantities, exactly: ``40Gi``, ``1500m``, ``1e3``, ``-0.5``.

The rule is apimachinery's ``resource.Quantity``: a decimal number with a binary, decimal
or exponent suffix, kept to nano precision and rounded away from zero beyond it.
"""

import re
from dataclasses import dataclass
from functools import lru_cache, total_ordering

from dray.domain.errors import InvalidInputError

NANO = 10**9
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_PATTERN = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[KMGTPE]i|[numkMGTPE]?))"
)
_LONGEST = 64


class InvalidQuantityError(InvalidInputError):
    """The text is not a Kubernetes quantity."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"{text[:_LONGEST]!r} is not a quantity: expected a number with an optional suffix "
            "n, u, m, k, M, G, T, P, E or Ki, Mi, Gi, Ti, Pi, Ei, such as 100, 1500m or 16Gi"
        )
        self.text = text


@total_ordering
@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount in billionths of a unit."""

    nano: int
    binary: bool = False
    """Whether it was written with a binary suffix, and is written so again."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano + other.nano, self.binary)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano - other.nano, self.binary)

    @property
    def value(self) -> int:
        """The amount in whole units, rounded away from zero as Go's ``Value()`` does."""
        return _round_away(self.nano, NANO)

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero as Go's ``MilliValue()`` does."""
        return _round_away(self.nano, NANO // 1000)

    @property
    def approximate(self) -> float:
        """The nearest float."""
        return self.nano / NANO

    def __str__(self) -> str:
        return _format(self.nano, self.binary)


@lru_cache(maxsize=16_384)
def parse_quantity(text: str) -> Quantity:
    """The exact amount that ``text`` stands for.

    Raises:
        InvalidQuantityError: ``text`` is not a quantity.
    """
    match = _PATTERN.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or not (match["whole"] or match["fraction"]):
        raise InvalidQuantityError(text)
    fraction = match["fraction"] or ""
    digits = int((match["whole"] or "0") + fraction)
    suffix = match["suffix"] or ""
    if suffix in _BINARY:
        nano = _round_away(digits * _BINARY[suffix] * NANO, 10 ** len(fraction))
    else:
        power = int(match["exponent"]) if match["exponent"] else _DECIMAL[suffix]
        nano = _scale(digits, power + 9 - len(fraction))
    return Quantity(-nano if match["sign"] == "-" else nano, suffix in _BINARY)


def quantity_of(units: int) -> Quantity:
    """A whole number of units as a quantity."""
    return Quantity(units * NANO)


def _scale(digits: int, power: int) -> int:
    return digits * 10**power if power >= 0 else _round_away(digits, 10**-power)


def _round_away(number: int, divisor: int) -> int:
    quotient, rest = divmod(abs(number), divisor)
    rounded = quotient + (1 if rest else 0)
    return -rounded if number < 0 else rounded


def _format(nano: int, binary: bool) -> str:
    if binary and nano % NANO == 0:
        for suffix, factor in reversed(_BINARY.items()):
            if nano and nano % (factor * NANO) == 0:
                return f"{nano // (factor * NANO)}{suffix}"
        return str(nano // NANO)
    for suffix, power in reversed(_DECIMAL.items()):
        unit = 10 ** (power + 9)
        if nano and nano % unit == 0:
            return f"{nano // unit}{suffix}"
    return "0"
