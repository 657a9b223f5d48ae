"""Kubernetes quantities, exactly: ``40Gi``, ``1500m``, ``1e3``, ``-0.5``.

The rule is apimachinery's ``resource.Quantity``: a decimal number with a binary, decimal
or exponent suffix, kept to nano precision and rounded away from zero beyond it.
"""

import math
import re
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache, total_ordering

from dray.api.errors import InvalidInputError

NANO = 10**9
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_PATTERN = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[KMGTPE]i|[numkMGTPE]?))"
)
_LONGEST = 64
_FAST_DIGITS = 18
_MOST_DIGITS = 5
_SMALL_SUFFIXES = ("n", "u", "m", "k")
_EXACT = Context(prec=60)
"""More digits than any quantity has."""
INT64 = range(-(2**63), 2**63)


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
    """Whether it was written with a binary suffix. If so, it is written with one again."""
    exponent: int = -9
    """The power of ten with which Kubernetes stores it. Users can see it through CEL's
    ``isInteger``."""
    is_small: bool = True
    """Whether Kubernetes stores it as an int64 times the power of ten, not as a big decimal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano

    def __add__(self, other: "Quantity") -> "Quantity":
        exponent, is_small = _held_as(self, other)
        return Quantity(self.nano + other.nano, self.binary, exponent, is_small)

    def __sub__(self, other: "Quantity") -> "Quantity":
        if other.is_small and _scaled(other.nano, -9, other.exponent) == INT64.start:
            # Go adds the negated number. The smallest int64 is its own negation.
            found = self + other
            if found.is_small:
                return found
        exponent, is_small = _held_as(self, -other)
        return Quantity(self.nano - other.nano, self.binary, exponent, is_small)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nano, self.binary, self.exponent, self.is_small)

    @property
    def value(self) -> int:
        """The amount in whole units, rounded away from zero as Go's ``Value()`` does."""
        return _round_away(self.nano, NANO)

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero as Go's ``MilliValue()`` does."""
        return _round_away(self.nano, NANO // 1000)

    @property
    def unscaled(self) -> int:
        """The amount divided by ten to the power of ``exponent``."""
        return _scaled(self.nano, -9, self.exponent)

    @property
    def integer(self) -> int | None:
        """The amount as Go's ``AsInt64()`` returns it; None if it returns none."""
        if not self.is_small or self.exponent < 0:
            return None
        units = self.nano // NANO
        return units if units in INT64 else None

    @property
    def approximate(self) -> float:
        """The float of Go's ``AsApproximateFloat64()``, rounded as Go rounds it."""
        try:
            base = float(self.unscaled)
        except OverflowError:
            base = math.inf if self.nano > 0 else -math.inf
        return base if self.exponent == 0 else base * float(f"1e{self.exponent}")

    def __str__(self) -> str:
        return _format(self.nano, self.binary)


@lru_cache(maxsize=16_384)
def parse_quantity(text: str) -> Quantity:
    """The exact amount that ``text`` means.

    Raises:
        InvalidQuantityError: ``text`` is not a quantity.
    """
    match = _PATTERN.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or not (match["whole"] or match["fraction"]):
        raise InvalidQuantityError(text)
    suffix = match["suffix"] or (f"e{match['exponent']}" if match["exponent"] else "")
    return written(match["sign"] == "-", match["whole"], match["fraction"] or "", suffix)


def written(is_negative: bool, whole: str, fraction: str, suffix: str) -> Quantity:
    """The amount of a decimal number with a valid suffix, stored as ``ParseQuantity`` stores it."""
    whole = whole.lstrip("0") or "0"
    digits = int(whole + fraction)
    sign = -1 if is_negative else 1
    if suffix in _BINARY:
        return _written_binary(sign, digits, len(whole), len(fraction), _BINARY[suffix])
    power = int(suffix[1:]) if suffix[:1] in ("e", "E") and suffix != "E" else _DECIMAL[suffix]
    exponent = power - len(fraction)
    nano = sign * _scale(digits, exponent + 9)
    if len(whole) + len(fraction) <= _FAST_DIGITS and exponent >= -9:
        return Quantity(nano, False, exponent)
    return Quantity(nano, False, -9 if digits else exponent, is_small=False)


def _written_binary(sign: int, digits: int, wholes: int, fractions: int, factor: int) -> Quantity:
    units = digits * factor
    log2 = factor.bit_length() - 1
    if fractions == 0 and 14 - wholes - log2 * 3 // 10 >= 0 and units in INT64:
        return Quantity(sign * units * NANO, True, 0)
    nano = _round_away(units * NANO, 10**fractions)
    return Quantity(sign * nano, True, -9 if digits else -fractions, is_small=False)


@lru_cache(maxsize=4096)
def readable(nano: int, *, binary: bool = False) -> str:
    """An amount in billionths of a unit as people write it, exactly. All texts for people use this
    rule.

    A plain number (``98.9``, ``10269.85``), or from a million on a number with a suffix (``80G``).
    The suffix is binary if ``binary``, or if that is shorter for whole mebibytes: ``16Gi``.
    """
    text = _format(nano, binary)
    if not binary and text[-1:] in _SMALL_SUFFIXES:
        text = plain_number(nano)
    is_whole = not binary and nano % (_BINARY["Mi"] * NANO) == 0
    return min(text, _format(nano, True), key=len) if is_whole else text


def readable_quantity(text: str) -> str:
    """A quantity of an object by the same rule; unchanged if it can't be parsed."""
    try:
        amount = parse_quantity(text)
    except InvalidQuantityError:
        return text
    return readable(amount.nano, binary=amount.binary)


def plain_number(nano: int) -> str:
    """An amount in billionths of a unit as a decimal number without suffix, for programs."""
    return f"{Decimal(nano).scaleb(-9, _EXACT).normalize(_EXACT):f}"


def rounded_down(nano: int, *, binary: bool = False) -> str:
    """As ``readable``, but rounded down, for remaining amounts. A fraction, or an amount of more
    than five digits, has up to two decimals: ``14.2Gi`` and not ``15247133901``."""
    return _in_hundredths(nano, binary, half_up=False)


def rounded(nano: int, *, binary: bool = False) -> str:
    """The same, rounded to the nearest hundredth, for sums: ``158Gi`` and not ``169651208176``."""
    return _in_hundredths(nano, binary, half_up=True)


def _in_hundredths(nano: int, binary: bool, *, half_up: bool) -> str:
    if nano < 0:
        return f"-{_in_hundredths(-nano, binary, half_up=half_up)}"
    text = readable(nano, binary=binary)
    if len(text.rstrip("kMGTPEi")) <= _MOST_DIGITS and "." not in text:
        return text
    units = {"": 1, **_BINARY} if binary else {"": 1, "M": 10**6, "G": 10**9}
    suffix, unit = max(
        ((one, of) for one, of in units.items() if of * NANO <= nano),
        key=lambda found: found[1],
        default=("", 1),
    )
    whole_unit = unit * NANO
    whole, hundredths = divmod((nano * 100 + (whole_unit // 2) * half_up) // whole_unit, 100)
    return f"{whole}.{hundredths:02}".rstrip("0").rstrip(".") + suffix


def quantity_of(units: int) -> Quantity:
    """A whole number of units as a quantity."""
    return Quantity(units * NANO, False, 0, units in INT64)


def _held_as(left: Quantity, right: Quantity) -> tuple[int, bool]:
    """Exponent and form of a sum, as apimachinery's ``Quantity.Add`` sets them."""
    exponent = min(left.exponent, right.exponent)
    if not (left.is_small and right.is_small):
        return exponent, False
    if right.nano == 0 or left.nano == 0:
        return (left if right.nano == 0 else right).exponent, True
    parts = (_scaled(left.nano, -9, exponent), _scaled(right.nano, -9, exponent))
    return exponent, all(part in INT64 for part in (*parts, sum(parts)))


def _scaled(number: int, exponent: int, wanted: int) -> int:
    """``number`` times 10**``exponent``, in units of 10**``wanted``; it divides evenly."""
    power = exponent - wanted
    factor: int = 10 ** abs(power)
    return number * factor if power >= 0 else number // factor


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
