"""``validRange`` of a request policy: the minimum plus multiples of the step, up to the maximum."""

from typing import Final

from dray.api.devices import RequestPolicy
from dray.api.quantities import NANO, parse_quantity
from dray_allocator.devices.amounts import (
    Amount,
    computed,
    fits_milli,
    format_of,
    in_units,
    parse_amount,
    quotient,
    wrapped,
)
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.versions import SchedulerVersion

_LARGEST: Final = 2**63 - 1


def rounded_up(
    name: str, asked: Amount, policy: RequestPolicy, version: SchedulerVersion
) -> Amount:
    """``asked`` of capacity ``name``, rounded up to the minimum plus a number of steps.

    Raises:
        AllocationError: Kubernetes reports an error for such numbers.
    """
    minimum = parse_amount(policy.minimum or "0")
    if asked.quantity < minimum.quantity:
        return minimum
    if policy.step is None:
        return asked
    in_milli = _counts_in_milli(policy, version)
    if version.refuses_invalid_amounts and not _is_countable(asked, in_milli=in_milli):
        raise _beyond(name, asked)
    wanted, least, step = (
        in_units(one.quantity, in_milli=in_milli)
        for one in (asked, minimum, parse_amount(policy.step))
    )
    if step == 0:
        raise AllocationError(f"capacity {name!r}: the step of its valid range is zero")
    above = wrapped(wanted - least)
    steps = quotient(above, step) + (1 if above % step else 0)
    if version.refuses_invalid_amounts:
        is_guarded = in_milli or least >= 0
        if is_guarded and steps > quotient(wrapped(_LARGEST - least), step):
            raise _beyond(name, asked)
        return computed(wrapped(least + step * steps), format_of(policy.step), in_milli=in_milli)
    return computed(wrapped(least + step * steps), "BinarySI", in_milli=False)


def is_out_of_range(amount: Amount, policy: RequestPolicy, version: SchedulerVersion) -> bool:
    """Whether ``amount`` is above the maximum, or between two steps."""
    if policy.maximum is not None and amount.quantity > parse_quantity(policy.maximum):
        return True
    if policy.step is None:
        return False
    in_milli = _counts_in_milli(policy, version)
    if in_milli and not fits_milli(amount.quantity):
        return True
    taken, least, step = (
        in_units(one, in_milli=in_milli)
        for one in (
            amount.quantity,
            parse_quantity(policy.minimum or "0"),
            parse_quantity(policy.step),
        )
    )
    if step == 0:
        raise AllocationError("the step of a valid range is zero")
    return wrapped(taken - least) % step != 0


def _counts_in_milli(policy: RequestPolicy, version: SchedulerVersion) -> bool:
    """Whether a range is computed in thousandths: all its bounds must be whole thousandths."""
    if not version.fractional_range:
        return False
    bounds = (policy.minimum, policy.maximum, policy.step)
    if not all(fits_milli(parse_quantity(text)) for text in bounds if text is not None):
        return False
    return policy.step is None or parse_quantity(policy.step).milli >= 1


def _is_countable(asked: Amount, *, in_milli: bool) -> bool:
    return fits_milli(asked.quantity) if in_milli else asked.quantity.nano <= _LARGEST * NANO


def _beyond(name: str, asked: Amount) -> AllocationError:
    return AllocationError(
        f"capacity {name!r}: capacity request {asked} cannot be represented in the device's "
        "range arithmetic"
    )
