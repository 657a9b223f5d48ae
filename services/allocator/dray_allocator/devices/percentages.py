"""Shares of a card whose amount depends on the card: ``compute-percent-request``.

The percentages are in the driver's configuration of the claim, because a request of Kubernetes
states amounts only; the request leaves the capacity out, which any other allocator takes as all
of the card. Percent is of the physical capacity, and is taken of the budget (virtual).
"""

from collections.abc import Container, Iterator, Mapping

from dray.api.claims import Claim
from dray.api.devices import Capacity
from dray.api.names import PERCENT_FIELDS, TFLOPS, VIRTUAL_TFLOPS, VIRTUAL_VRAM, VRAM
from dray.api.quantities import NANO, InvalidQuantityError, Quantity, parse_quantity
from dray_allocator.devices.driver_parameters import own_parameters

Share = tuple[tuple[str, int], ...]
"""Billionths of a percent by consumed capacity; none: amounts are stated."""
PHYSICAL = {VIRTUAL_TFLOPS: TFLOPS, VIRTUAL_VRAM: VRAM}
"""What a share of a capacity is a percentage of."""
WHOLE = 100 * NANO
_STEP = {VIRTUAL_TFLOPS: NANO // 1000, VIRTUAL_VRAM: NANO}
"""Shares are multiples of a thousandth of a TFLOPS, and of a byte; the rest is nobody's."""


def percents(claim: Claim, *request: str) -> dict[str, int]:
    """Billionths of a percent by consumed capacity, for a request of any of these names, as an
    alternative has two; unreadable ones left out."""
    found: dict[str, int] = {}
    for parameters in own_parameters(claim, *request):
        for capacity, field in PERCENT_FIELDS.items():
            percent = _percent(parameters.get(field))
            if percent is not None:
                found[capacity] = percent
    return found


def shares_of(claim: Claim) -> Iterator[Share]:
    """The percentages of every request, or of each of its alternatives."""
    for request, one in claim.spec.alternatives():
        found = percents(claim, request.name, f"{request.name}/{one.name}")
        yield tuple(sorted(found.items()))


def unreadable(claim: Claim) -> Iterator[str]:
    """What a claim says of percentages that is none."""
    for parameters in own_parameters(claim):
        for field in PERCENT_FIELDS.values():
            text = parameters.get(field)
            if text is not None and _percent(text) is None:
                yield f"config {field} {text!r}: expected above 0 and at most 100"


def amounts(
    percents: Mapping[str, int], stated: Mapping[str, str], published: Mapping[str, Capacity]
) -> Mapping[str, str]:
    """``capacity.requests`` on a card that publishes this: stated amounts, and shares of it.

    A share is rounded down, so that as many fit as the percentage promises.
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
    """The percentages that count on such a card: an amount that is stated comes before."""
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
