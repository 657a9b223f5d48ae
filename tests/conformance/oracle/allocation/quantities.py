"""Amounts as Kubernetes writes them, compared by value."""

import re
from fractions import Fraction
from typing import Final

_FORM: Final = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([KMGTPE]i)|([numkMGTPE]))?")
_BINARY: Final = {unit: 1024**power for power, unit in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {unit: 1000**power for power, unit in enumerate("kMGTPE", 1)}
_SMALL: Final = {unit: Fraction(1, 1000**power) for power, unit in enumerate("mun", 1)}


def amount_of(text: str) -> Fraction:
    """The value of ``text``, such as 40Gi or 500m.

    Raises:
        ValueError: it is not a quantity.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity: expected a form such as 40Gi or 500m")
    number, exponent, binary, decimal = match.groups()
    value = Fraction(number)
    if exponent:
        value *= Fraction(10) ** int(exponent[1:])
    elif binary:
        value *= _BINARY[binary[0]]
    elif decimal:
        value *= _DECIMAL.get(decimal) or _SMALL[decimal]
    return value
