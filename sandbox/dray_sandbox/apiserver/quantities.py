"""Kubernetes quantities: parsing, comparison, and the canonical text in answers.

The rule is `k8s.io/apimachinery/pkg/api/resource.Quantity`: the canonical form has an integer
mantissa and the largest suffix of the family it was written in.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SYNTAX = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([eE][+-]?\d+)|([numkKMGTPE]i?)|)")
_SYNTAX_ERROR = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


@dataclass(frozen=True)
class ApiQuantity:
    """An exact number and the suffix family it was written in."""

    value: Fraction
    family: str

    def __str__(self) -> str:
        return _canonical(self.value, self.family)

    def whole(self) -> int:
        """The value rounded up, as Go's `Value()` gives it."""
        return ceil(self.value)


def parse(text: str) -> ApiQuantity:
    """Read a quantity; `ValueError` if it is not one."""
    match = _SYNTAX.fullmatch(text)
    if not match:
        raise ValueError(_SYNTAX_ERROR)
    sign, digits, exponent, suffix = match.groups()
    number = Fraction("0" + digits if digits.startswith(".") else digits.rstrip("."))
    number = -number if sign == "-" else number
    if exponent:
        return ApiQuantity(_nano(number * Fraction(10) ** int(exponent[1:])), "exponent")
    if suffix in _BINARY:
        return ApiQuantity(_nano(number * 2 ** _BINARY[suffix]), "binary")
    if (suffix or "") not in _DECIMAL:
        raise ValueError("unable to parse quantity's suffix")
    return ApiQuantity(_nano(number * Fraction(10) ** _DECIMAL[suffix or ""]), "decimal")


def _nano(value: Fraction) -> Fraction:
    """Round to whole nanos, away from zero."""
    scaled = value * 10**9
    whole = ceil(scaled) if scaled >= 0 else -ceil(-scaled)
    return Fraction(whole, 10**9)


def _canonical(value: Fraction, family: str) -> str:
    if value == 0:
        return "0"
    if family == "binary" and abs(value) >= 1024 and value.denominator == 1:
        return _binary(value.numerator)
    return _decimal(value, "exponent" if family == "exponent" else "decimal")


def _binary(value: int) -> str:
    for suffix, power in reversed(_BINARY.items()):
        if value % (1 << power) == 0:
            return f"{value >> power}{suffix}"
    return str(value)


def _decimal(value: Fraction, family: str) -> str:
    for suffix, power in reversed(_DECIMAL.items()):
        mantissa = value / Fraction(10) ** power
        if mantissa.denominator == 1:
            if family == "exponent":
                return f"{mantissa.numerator}e{power}" if power else str(mantissa.numerator)
            return f"{mantissa.numerator}{suffix}"
    raise AssertionError(f"{value} is finer than a nano")
