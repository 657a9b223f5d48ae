"""What a request takes of a device's capacities, after the device's request policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dray.domain.devices import Capacity, RequestPolicy
from dray.domain.quantities import NANO, Quantity, parse_quantity, quantity_of
from dray_allocator.structured.errors import AllocationError
from dray_allocator.structured.rules import Rules

Format = Literal["BinarySI", "DecimalSI", "DecimalExponent"]
Consumed = Mapping[str, Quantity]
_MILLI: Final = NANO // 1000
_INT64: Final = range(-(2**63), 2**63)
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity, and the text that it was given as; computed ones have none."""

    quantity: Quantity
    text: str = ""

    def __str__(self) -> str:
        return self.text or str(self.quantity)


def demand(
    asked: Mapping[str, str] | None, capacities: Mapping[str, Capacity], rules: Rules
) -> dict[str, Amount] | None:
    """What each capacity of a device would lose; None where its policies don't allow it, or
    where it lacks one that is asked for. Names count as they are published: none is completed.

    Raises:
        AllocationError: an amount that Kubernetes refuses to reckon with.
    """
    asked = asked or {}
    if any(name not in capacities for name in asked):
        return None
    amounts = {
        name: _rounded(name, asked.get(name), capacity, rules)
        for name, capacity in capacities.items()
    }
    for name, capacity in capacities.items():
        if capacity.policy and _violates(amounts[name], capacity.policy, rules):
            return None
    return amounts


def has_room(
    amounts: Mapping[str, Amount], capacities: Mapping[str, Capacity], used: Sequence[Consumed]
) -> bool:
    """Whether ``amounts`` fit beside all that is ``used`` of the device."""
    return all(
        amount.quantity.nano + sum(one[name].nano for one in used if name in one)
        <= parse_quantity(capacities[name].value).nano
        for name, amount in amounts.items()
    )


def _rounded(name: str, asked: str | None, capacity: Capacity, rules: Rules) -> Amount:
    """The amount that is taken for ``asked``; without a policy's default, none means all."""
    policy = capacity.policy
    if asked is None:
        amount = _stated(policy.default if policy and policy.default else capacity.value)
    elif policy is None:
        amount = _stated(asked)
    elif policy.minimum is not None:
        amount = _in_range(name, _stated(asked), policy, rules)
    else:
        amount = _next_valid(_stated(asked), policy.valid_values)
    if rules.refuses_odd_amounts and amount.quantity.nano < 0:
        raise AllocationError(f"capacity {name!r}: capacity value is negative: {amount}")
    return amount


def _stated(text: str) -> Amount:
    return Amount(parse_quantity(text), text)


def _next_valid(asked: Amount, valid: Sequence[str]) -> Amount:
    amounts = (_stated(text) for text in valid)
    return next((one for one in amounts if asked.quantity <= one.quantity), asked)


def _in_range(name: str, asked: Amount, policy: RequestPolicy, rules: Rules) -> Amount:
    """``asked`` rounded up to the minimum plus a number of steps."""
    minimum = _stated(policy.minimum or "0")
    if asked.quantity < minimum.quantity:
        return minimum
    if policy.step is None:
        return asked
    step = _stated(policy.step)
    if in_milli := _counts_in_milli(policy, rules):
        if asked.quantity.nano % _MILLI or asked.quantity.milli not in _INT64:
            raise _beyond(name, asked)
    elif rules.refuses_odd_amounts and asked.quantity.nano > _LARGEST * NANO:
        raise _beyond(name, asked)
    units = [_whole(one.quantity, in_milli=in_milli) for one in (asked, minimum, step)]
    found = _stepped(name, *units)
    if rules.refuses_odd_amounts:
        if found not in _INT64 and units[1] >= 0:
            raise _beyond(name, asked)
        return _computed(found, _format(policy.step), in_milli=in_milli)
    return _computed(found, "BinarySI", in_milli=False)


def _stepped(name: str, asked: int, minimum: int, step: int) -> int:
    if step == 0:
        raise AllocationError(f"capacity {name!r}: the step of its valid range is zero")
    # Go's division drops the fraction; below the minimum nothing gets here.
    steps = abs(asked - minimum) // abs(step) * (1 if (asked - minimum) * step >= 0 else -1)
    if (asked - minimum) % step:
        steps += 1
    return minimum + step * steps


def _violates(amount: Amount, policy: RequestPolicy, rules: Rules) -> bool:
    if policy.default is not None and _is_same_to_go(amount, policy.default):
        return False
    if policy.minimum is not None or policy.maximum is not None or policy.step is not None:
        return _is_out_of_range(amount, policy, rules)
    valid = [parse_quantity(text) for text in policy.valid_values]
    return bool(valid) and amount.quantity not in valid


def _is_out_of_range(amount: Amount, policy: RequestPolicy, rules: Rules) -> bool:
    if policy.maximum is not None and amount.quantity > parse_quantity(policy.maximum):
        return True
    if policy.step is None:
        return False
    step, minimum = parse_quantity(policy.step), parse_quantity(policy.minimum or "0")
    in_milli = _counts_in_milli(policy, rules)
    if in_milli and (amount.quantity.nano % _MILLI or amount.quantity.milli not in _INT64):
        return True
    asked, least, by = (_whole(one, in_milli=in_milli) for one in (amount.quantity, minimum, step))
    if by == 0:
        raise AllocationError("the step of a valid range is zero")
    return (asked - least) % by != 0


def _counts_in_milli(policy: RequestPolicy, rules: Rules) -> bool:
    """Whether a range is reckoned in thousandths: it must fit them without a rest."""
    if not rules.fractional_range:
        return False
    bounds = [parse_quantity(t) for t in (policy.minimum, policy.maximum, policy.step) if t]
    if any(one.nano % _MILLI or one.milli not in _INT64 for one in bounds):
        return False
    return policy.step is None or parse_quantity(policy.step).milli >= 1


def _whole(quantity: Quantity, *, in_milli: bool) -> int:
    """Go's ``Value()`` or ``MilliValue()``: rounded up, and within 64 bits whatever it takes."""
    found = quantity.milli if in_milli else quantity.value
    if found in _INT64:
        return found
    if quantity.is_small:
        return 0
    return (found + 2**63) % 2**64 - 2**63


def _computed(units: int, form: Format, *, in_milli: bool) -> Amount:
    if in_milli and units % 1000:
        return Amount(Quantity(units * _MILLI, form == "BinarySI", -3))
    whole = quantity_of(units // 1000 if in_milli else units)
    return Amount(Quantity(whole.nano, form == "BinarySI", 0, whole.is_small))


def _beyond(name: str, asked: Amount) -> AllocationError:
    return AllocationError(
        f"capacity {name!r}: capacity request {asked} cannot be represented in the device's "
        "range arithmetic"
    )


def _is_same_to_go(amount: Amount, text: str) -> bool:
    """Whether Go's ``==`` takes both for one value: it compares how they are held, not how much
    they are. ``1Gi`` and ``1024Mi`` differ to it, and big decimals differ from everything.
    """
    other = parse_quantity(text)
    if not (amount.quantity.is_small and other.is_small):
        return False
    if amount.quantity.nano != other.nano or amount.quantity.exponent != other.exponent:
        return False
    return _form(amount) == _form(_stated(text))


def _form(amount: Amount) -> tuple[str, str]:
    """The format, and the text where Go keeps it: only where it is canonical already."""
    if not amount.text:
        return ("BinarySI" if amount.quantity.binary else "DecimalSI"), ""
    form = _format(amount.text)
    if amount.text == "0":
        return form, "0"
    if form == "BinarySI":
        power = _BINARY_POWERS[amount.text[-2:]]
        is_kept = (amount.quantity.value >> power) & 7 != 0
        return form, amount.text if is_kept else ""
    digits = _digits(amount.text)
    is_kept = amount.quantity.exponent % 3 == 0 and not digits.endswith("000") and digits[:1] != "0"
    return form, amount.text if is_kept else ""


_BINARY_POWERS: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def _format(text: str) -> Format:
    if text[-2:] in _BINARY_POWERS:
        return "BinarySI"
    has_exponent = text[-1:].isdigit() and any(letter in text for letter in "eE")
    return "DecimalExponent" if has_exponent else "DecimalSI"


def _digits(text: str) -> str:
    """The digits before and after the point, without leading zeros of the whole part."""
    number = text.lstrip("+-")
    number = "".join(
        letter for letter in number.split("e")[0].split("E")[0] if letter in "0123456789."
    )
    whole, _, fraction = number.partition(".")
    return (whole.lstrip("0") or "0") + fraction
