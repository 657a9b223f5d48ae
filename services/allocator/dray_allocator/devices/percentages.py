"""Requests for a percentage of a card: ``compute-percent-request``.

The percentages are in the claim's opaque configuration, because ``capacity.requests`` holds amounts
only. The request omits the capacity: any other allocator allocates the full capacity. A percentage
is of the physical capacity; the amount is consumed from the virtual capacity.
"""

from collections.abc import Container, Iterator, Mapping

from dray.api.claims import Claim
from dray.api.devices import Capacity
from dray.api.names import PERCENT_FIELDS, TFLOPS, VIRTUAL_TFLOPS, VIRTUAL_VRAM, VRAM
from dray.api.quantities import NANO, InvalidQuantityError, Quantity, parse_quantity
from dray_allocator.devices.driver_parameters import own_parameters

Share = tuple[tuple[str, int], ...]
"""Billionths of a percent by consumed capacity; empty if the request has amounts."""
PHYSICAL = {VIRTUAL_TFLOPS: TFLOPS, VIRTUAL_VRAM: VRAM}
"""The physical capacity that a percentage of a virtual capacity refers to."""
WHOLE = 100 * NANO
_STEP = {VIRTUAL_TFLOPS: NANO // 1000, VIRTUAL_VRAM: NANO}
"""Amounts are rounded down to a thousandth of a TFLOPS, and to a byte."""


def percents(claim: Claim, *request: str) -> dict[str, int]:
    """Billionths of a percent by consumed capacity, without invalid ones. A subrequest has two
    names: its request's and ``request/subrequest``."""
    found: dict[str, int] = {}
    for parameters in own_parameters(claim, *request):
        for capacity, field in PERCENT_FIELDS.items():
            percent = _percent(parameters.get(field))
            if percent is not None:
                found[capacity] = percent
    return found


def shares_of(claim: Claim) -> Iterator[Share]:
    """The percentages of every request or subrequest."""
    for request, one in claim.spec.alternatives():
        found = percents(claim, request.name, f"{request.name}/{one.name}")
        yield tuple(sorted(found.items()))


def unreadable(claim: Claim) -> Iterator[str]:
    """The invalid percentages of a claim."""
    for parameters in own_parameters(claim):
        for field in PERCENT_FIELDS.values():
            text = parameters.get(field)
            if text is not None and _percent(text) is None:
                yield f"config {field} {text!r}: expected above 0 and at most 100"


def amounts(
    percents: Mapping[str, int], stated: Mapping[str, str], published: Mapping[str, Capacity]
) -> Mapping[str, str]:
    """``capacity.requests`` for a card with this capacity: requested amounts, and percentages as
    amounts, rounded down so that four requests for 25 % always fit.
    """
    if not percents:
        return stated
    asked = dict(stated)
    for name, percent in in_percent(percents, stated, published).items():
        nano = parse_quantity(published[PHYSICAL[name]].value).nano * percent // WHOLE
        whole_steps = nano - nano % _STEP[name]
        asked[name] = str(Quantity(whole_steps, binary=name == VIRTUAL_VRAM))
    return asked


def in_percent(
    percents: Mapping[str, int], stated: Container[str], published: Container[str]
) -> dict[str, int]:
    """The percentages that apply to such a card; a requested amount overrides a percentage."""
    return {
        name: percent
        for name, percent in percents.items()
        if name not in stated and name in published and PHYSICAL[name] in published
    }


def _percent(text: object) -> int | None:
    try:
        nano = parse_quantity(str(text)).nano if text is not None else 0
    except InvalidQuantityError:
        return None
    return nano if 0 < nano <= WHOLE else None
