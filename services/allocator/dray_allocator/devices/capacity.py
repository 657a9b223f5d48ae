"""What a request takes of a device's capacities, after the device's request policy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dray.api.claims import DeviceRequest
from dray.api.devices import Capacity, Device, RequestPolicy
from dray.api.quantities import parse_quantity
from dray_allocator.devices.amounts import Amount, is_same_to_go, stated
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.ranges import is_out_of_range, rounded_up
from dray_allocator.devices.versions import SchedulerVersion


@dataclass(frozen=True, eq=False)
class Demand:
    """What one request takes of each capacity of a device."""

    amounts: Mapping[str, Amount]
    nano: Mapping[str, int]
    """The same in billionths."""
    totals: Mapping[str, int]
    """All there is of each, in billionths."""

    @cached_property
    def text(self) -> dict[str, str]:
        """The amounts as Kubernetes writes them. Not to be changed: all that take as much have the
        same one."""
        return {name: str(amount.quantity) for name, amount in self.amounts.items()}

    def fits_beside(self, used: Mapping[str, int]) -> bool:
        """Whether there is room besides all that is ``used`` (in billionths) of the device."""
        totals = self.totals
        for name, taken in self.nano.items():  # noqa: SIM110 - a generator takes twice as long
            if taken + used.get(name, 0) > totals[name]:
                return False
        return True


WHOLE: Final = Demand({}, {}, {})
"""Of a device that is not shared."""


Stated = Callable[[DeviceRequest, Device], Mapping[str, str]]
"""The capacities that an ask requests of a device."""
DemandOf = Callable[[DeviceRequest, Candidate], Demand | None]
"""What an ask takes of a device; None where it can't have it.

Raises AllocationError for an amount that Kubernetes refuses to reckon with.
"""


def as_stated(ask: DeviceRequest, device: Device) -> Mapping[str, str]:
    """The same of every device."""
    return ask.capacity


def demand_by(rules: SchedulerVersion, stated: Stated = as_stated) -> DemandOf:
    """By the rules of a version, of what ``stated`` says that is asked for."""
    return lambda ask, candidate: demand(
        stated(ask, candidate.device), candidate.device.capacity, rules
    )


def demand(
    asked: Mapping[str, str], capacities: Mapping[str, Capacity], rules: SchedulerVersion
) -> Demand | None:
    """What each capacity of a device would lose; None where its policies don't allow it, or
    where it lacks one that is asked for. Names count as they are published: none is completed.

    Raises:
        AllocationError: an amount that Kubernetes refuses to reckon with.
    """
    if any(name not in capacities for name in asked):
        return None
    amounts = {
        name: _taken(name, asked.get(name), capacity, rules)
        for name, capacity in capacities.items()
    }
    for name, capacity in capacities.items():
        if capacity.policy and _violates(amounts[name], capacity.policy, rules):
            return None
    return Demand(
        amounts,
        {name: amount.quantity.nano for name, amount in amounts.items()},
        {name: parse_quantity(capacity.value).nano for name, capacity in capacities.items()},
    )


def _taken(name: str, asked: str | None, capacity: Capacity, rules: SchedulerVersion) -> Amount:
    """The amount that is taken for ``asked``; without a policy's default, none means all."""
    policy = capacity.policy
    if asked is None:
        default = policy.default if policy else None
        amount = stated(capacity.value if default is None else default)
    elif policy is None:
        amount = stated(asked)
    elif policy.minimum is not None:
        amount = rounded_up(name, stated(asked), policy, rules)
    else:
        amount = _next_valid(stated(asked), policy.valid_values)
    if rules.refuses_odd_amounts and amount.quantity.nano < 0:
        raise AllocationError(f"capacity {name!r}: capacity value is negative: {amount}")
    return amount


def _next_valid(asked: Amount, valid: Sequence[str]) -> Amount:
    amounts = (stated(text) for text in valid)
    return next((one for one in amounts if asked.quantity <= one.quantity), asked)


def _violates(amount: Amount, policy: RequestPolicy, rules: SchedulerVersion) -> bool:
    if policy.default is not None and is_same_to_go(amount, policy.default):
        return False
    if policy.minimum is not None or policy.maximum is not None or policy.step is not None:
        return is_out_of_range(amount, policy, rules)
    valid = [parse_quantity(text) for text in policy.valid_values]
    return bool(valid) and amount.quantity not in valid
