"""Quantities with Go's representation and int64 arithmetic, where these affect a result."""

from functools import lru_cache
from typing import Final, Literal

import msgspec

from dray.api.quantities import INT64, NANO, Quantity, parse_quantity, quantity_of

Format = Literal["BinarySI", "DecimalSI", "DecimalExponent"]
_MILLI: Final = NANO // 1000
_BINARY_POWERS: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class Amount(msgspec.Struct, frozen=True, gc=False):
    """A quantity and the text that it was parsed from; computed amounts have no text."""

    quantity: Quantity
    text: str = ""

    def __str__(self) -> str:
        return self.text or str(self.quantity)


@lru_cache(maxsize=4096)
def parse_amount(text: str) -> Amount:
    """Parse an amount."""
    return Amount(parse_quantity(text), text)


def computed(units: int, form: Format, *, in_milli: bool) -> Amount:
    """The amount of a number of whole units or thousandths."""
    is_binary = form == "BinarySI"
    if in_milli and units % 1000:
        return Amount(Quantity(units * _MILLI, is_binary, -3))
    whole = quantity_of(units // 1000 if in_milli else units)
    return Amount(Quantity(whole.nano, is_binary, 0, whole.is_small))


def in_units(quantity: Quantity, *, in_milli: bool) -> int:
    """Go's ``Value()`` or ``MilliValue()``: rounded up; a number beyond 64 bits wraps around."""
    found = quantity.milli if in_milli else quantity.value
    if found in INT64:
        return found
    return 0 if quantity.is_small else wrapped(found)


def fits_milli(quantity: Quantity) -> bool:
    """Whether the quantity is a 64-bit number of thousandths, without a remainder."""
    return quantity.nano % _MILLI == 0 and quantity.milli in INT64


def wrapped(number: int) -> int:
    """A number as an int64, with wraparound as in Go."""
    return (number + 2**63) % 2**64 - 2**63


def quotient(dividend: int, divisor: int) -> int:
    """Go's integer division, which truncates toward zero."""
    found = abs(dividend) // abs(divisor)
    return found if (dividend < 0) == (divisor < 0) else -found


def is_same_to_go(amount: Amount, text: str) -> bool:
    """Whether both are equal by Go's ``==``, which compares the representation, not the value.

    ``1Gi`` and ``1024Mi`` differ, and a big decimal differs from everything.
    """
    if amount.text == text:
        return amount.quantity.is_small
    other = parse_amount(text)
    mine, its = amount.quantity, other.quantity
    if not (mine.is_small and its.is_small):
        return False
    if mine.nano != its.nano or mine.exponent != its.exponent:
        return False
    return _representation(amount) == _representation(other)


def format_of(text: str) -> Format:
    """The format in which Go prints the amount."""
    if text[-2:] in _BINARY_POWERS:
        return "BinarySI"
    has_exponent = text[-1:].isdigit() and ("e" in text or "E" in text)
    return "DecimalExponent" if has_exponent else "DecimalSI"


def _representation(amount: Amount) -> tuple[str, str]:
    """The format, and the text if Go caches it, which it does only if it is canonical."""
    text = amount.text
    if not text:
        return ("BinarySI" if amount.quantity.binary else "DecimalSI"), ""
    form = format_of(text)
    if text == "0":
        return form, text
    if form == "BinarySI":
        is_kept = (amount.quantity.value >> _BINARY_POWERS[text[-2:]]) & 7 != 0
    else:
        digits = _digits(text)
        is_whole_thousand = amount.quantity.exponent % 3 == 0
        is_kept = is_whole_thousand and not digits.endswith("000") and digits[:1] != "0"
    return form, text if is_kept else ""


def _digits(text: str) -> str:
    """The digits before and after the point, without leading zeros of the whole part."""
    mantissa = text.lower().split("e")[0].rstrip("numkgtpi")
    whole, _, fraction = mantissa.lstrip("+-").partition(".")
    return (whole.lstrip("0") or "0") + fraction
