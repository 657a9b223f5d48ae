"""Parsers of annotation values. Each raises ValueError with what is expected."""

import re

from dray.api.names import MAX_GPUS_PER_CLAIM, QOS_LEVELS
from dray.api.placement import parse_placement
from dray.api.preference import LONGEST_MODEL, parse_preference
from dray.api.quantities import InvalidQuantityError, Quantity, parse_quantity

_MIN_AMOUNT = parse_quantity("1")
"""The smallest request of a device (``validRange.min`` of the virtual capacities)."""
_MAX_AMOUNT = parse_quantity("9223372036854775807")
"""Kubernetes caps larger quantities, so the claim would differ from the request."""
_ALL_OF_A_CARD = parse_quantity("100")
_MAX_POOL_NAME_LENGTH = 63
"""The pool's name is a label value."""
_POOL_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_SHOWN = 80


def quoted(text: str) -> str:
    """A user's text in quotes, on one line, shortened."""
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    visible = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return '"' + "".join(visible) + '"'


def boolean(text: str) -> bool:
    """Parse "true" or "false"."""
    if text not in ("true", "false"):
        raise ValueError('expected "true" or "false"')
    return text == "true"


def amount(text: str, example: str) -> Quantity:
    """A quantity between MIN_AMOUNT and MAX_AMOUNT."""
    try:
        quantity = parse_quantity(text)
    except InvalidQuantityError:
        raise ValueError(
            f"expected a Kubernetes quantity, a number with an optional suffix such as "
            f"m, k, M, G, Ki, Mi or Gi; for example {example}"
        ) from None
    if quantity.nano <= 0:
        raise ValueError("expected a quantity above zero")
    if quantity < _MIN_AMOUNT:
        raise ValueError("expected at least 1, the smallest share of a card")
    if quantity > _MAX_AMOUNT:
        raise ValueError(
            f"expected at most {_MAX_AMOUNT}, the largest quantity that Kubernetes keeps"
        )
    return quantity


def percent(text: str) -> Quantity:
    """A percentage of each device."""
    try:
        share = parse_quantity(text)
    except InvalidQuantityError:
        share = Quantity(0)
    if not 0 < share.nano <= _ALL_OF_A_CARD.nano:
        raise ValueError(
            'expected a number above 0 and at most 100, percent of each card, such as "25"'
        )
    return share


def preference(text: str) -> str:
    """The text of a preference; the allocator parses it again."""
    if not parse_preference(text):
        raise ValueError("expected a preference; leave the annotation out to have none")
    return text


def placement(text: str) -> str:
    """The text of a placement; the allocator parses it again."""
    parse_placement(text)
    return text


def count(text: str) -> int:
    """Number of GPUs."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= MAX_GPUS_PER_CLAIM:
        raise ValueError(
            f"expected a whole number from 1 to {MAX_GPUS_PER_CLAIM}, "
            "the most devices that Kubernetes allows in one claim"
        )
    return int(text)


def pool(text: str) -> str:
    """Name of a GPUPool."""
    if not _POOL_NAME.fullmatch(text) or len(text) > _MAX_POOL_NAME_LENGTH:
        raise ValueError(
            "expected the name of a GPUPool: lower-case letters, digits, '-' and '.', "
            f"{_MAX_POOL_NAME_LENGTH} characters at most"
        )
    return text


def model(text: str) -> str:
    """Name of a GPU model."""
    if not text.strip() or len(text) > LONGEST_MODEL or not text.isprintable():
        raise ValueError(
            f'expected a GPU model such as "A100", {LONGEST_MODEL} characters at most; '
            "leave the annotation out to accept any model"
        )
    if text != text.strip():
        raise ValueError(f'expected no space around it; is "{text.strip()}" meant?')
    return text


def qos(text: str) -> str:
    """A quality-of-service level."""
    if text not in QOS_LEVELS:
        levels = ", ".join(f'"{level}"' for level in QOS_LEVELS)
        raise ValueError(f"expected one of {levels}; leave the annotation out to accept any")
    return text


def expression(text: str) -> str:
    """The pod's CEL expression, in either dialect; it is parsed later."""
    if not text.strip():
        raise ValueError(
            "expected a CEL expression; leave the annotation out to have one generated"
        )
    return text
