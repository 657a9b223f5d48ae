"""What the text of one annotation may be. Each rule raises ValueError with what it expected."""

import re

from dray.domain.names import MAX_GPUS_PER_CLAIM, QOS_LEVELS
from dray.domain.placement import parse_placement
from dray.domain.preference import LONGEST_MODEL, parse_preference
from dray.domain.quantities import InvalidQuantityError, Quantity, parse_quantity

LEAST = parse_quantity("1")
"""A card's budget admits no request below one unit (``validRange.min`` of the virtual pair)."""
MOST = parse_quantity("9223372036854775807")
"""Kubernetes stores no larger quantity: it would cap it, and the claim would differ."""
ALL_OF_A_CARD = parse_quantity("100")
LONGEST_POOL = 63
"""The pool's name travels as a label value."""
_POOL_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_SHOWN = 80


def shown(text: str) -> str:
    """What somebody wrote, quoted, in one line that is not too long."""
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    visible = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return '"' + "".join(visible) + '"'


def boolean(text: str) -> bool:
    """ "true" or "false": annotations are texts."""
    if text not in ("true", "false"):
        raise ValueError('expected "true" or "false"')
    return text == "true"


def amount(text: str, example: str) -> Quantity:
    """A quantity that a card's budget can give."""
    try:
        quantity = parse_quantity(text)
    except InvalidQuantityError:
        raise ValueError(
            f"expected a Kubernetes quantity, a number with an optional suffix such as "
            f"m, k, M, G, Ki, Mi or Gi; for example {example}"
        ) from None
    if quantity.nano <= 0:
        raise ValueError("expected a quantity above zero")
    if quantity < LEAST:
        raise ValueError("expected at least 1, the smallest share of a card")
    if quantity > MOST:
        raise ValueError(f"expected at most {MOST}, the largest quantity that Kubernetes keeps")
    return quantity


def percent(text: str) -> Quantity:
    """Percent of each card."""
    try:
        share = parse_quantity(text)
    except InvalidQuantityError:
        share = Quantity(0)
    if not 0 < share.nano <= ALL_OF_A_CARD.nano:
        raise ValueError(
            'expected a number above 0 and at most 100, percent of each card, such as "25"'
        )
    return share


def preference(text: str) -> str:
    """The text of a preference, which whoever allocates parses again."""
    if not parse_preference(text):
        raise ValueError("expected a preference; leave the annotation out to have none")
    return text


def placement(text: str) -> str:
    """The text of a placement, which whoever allocates parses again."""
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
    if not _POOL_NAME.fullmatch(text) or len(text) > LONGEST_POOL:
        raise ValueError(
            "expected the name of a GPUPool: lower-case letters, digits, '-' and '.', "
            f"{LONGEST_POOL} characters at most"
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
    """A level of the quality of service."""
    if text not in QOS_LEVELS:
        levels = ", ".join(f'"{level}"' for level in QOS_LEVELS)
        raise ValueError(f"expected one of {levels}; leave the annotation out to accept any")
    return text


def expression(text: str) -> str:
    """CEL of the pod's own, in either dialect; it is parsed later."""
    if not text.strip():
        raise ValueError(
            "expected a CEL expression; leave the annotation out to have one generated"
        )
    return text
