"""How much of a device's capacities a request consumes, by the device's request policies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dray.api.claims import DeviceRequest
from dray.api.devices import Capacity, Device, RequestPolicy
from dray.api.quantities import parse_quantity
from dray_allocator.devices.amounts import Amount, is_same_to_go, parse_amount
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.ranges import is_out_of_range, rounded_up
from dray_allocator.devices.versions import SchedulerVersion


@dataclass(frozen=True, eq=False)
class Demand:
    """How much one request consumes of each capacity of a device."""

    amounts: Mapping[str, Amount]
    nano: Mapping[str, int]
    """The same in billionths."""
    totals: Mapping[str, int]
    """The published capacities, in billionths."""

    @cached_property
    def text(self) -> dict[str, str]:
        """The amounts as Kubernetes formats them. Read-only: equal demands share the object."""
        return {name: str(amount.quantity) for name, amount in self.amounts.items()}

    @cached_property
    def fits_unused(self) -> bool:
        """Whether a device that nobody uses has enough."""
        return self.fits_with({})

    def fits_with(self, used: Mapping[str, int]) -> bool:
        """Whether the device has enough left if ``used`` (in billionths) is in use."""
        totals = self.totals
        for name, taken in self.nano.items():  # noqa: SIM110 - a generator takes twice as long
            if taken + used.get(name, 0) > totals[name]:
                return False
        return True


WHOLE: Final = Demand({}, {}, {})
"""The demand for a device that does not allow multiple allocations."""


RequestedCapacity = Callable[[DeviceRequest, Device], Mapping[str, str]]
"""``capacity.requests`` of a request for a device."""
DemandOf = Callable[[DeviceRequest, Candidate], Demand | None]
"""How much a request consumes of a device; None if a policy or a missing capacity forbids it.

Raises AllocationError for an amount that Kubernetes reports as an error.
"""


def requested_capacity(ask: DeviceRequest, device: Device) -> Mapping[str, str]:
    """The amounts in the request: the same for every device."""
    return ask.capacity


def demand_by(
    version: SchedulerVersion, requested: RequestedCapacity = requested_capacity
) -> DemandOf:
    """How much requests consume in a version. ``requested`` gives the requested
    capacity."""
    return lambda ask, candidate: demand(
        requested(ask, candidate.device), candidate.device.capacity, version
    )


def demand(
    asked: Mapping[str, str], capacities: Mapping[str, Capacity], version: SchedulerVersion
) -> Demand | None:
    """How much of each capacity is consumed; None if a request policy does not allow it, or if the
    device lacks a requested capacity. Names must equal the published ones, without a default
    domain.

    Raises:
        AllocationError: an amount that Kubernetes reports as an error.
    """
    if any(name not in capacities for name in asked):
        return None
    amounts = {
        name: _taken(name, asked.get(name), capacity, version)
        for name, capacity in capacities.items()
    }
    for name, capacity in capacities.items():
        if capacity.policy and _violates(amounts[name], capacity.policy, version):
            return None
    return Demand(
        amounts,
        {name: amount.quantity.nano for name, amount in amounts.items()},
        {name: parse_quantity(capacity.value).nano for name, capacity in capacities.items()},
    )


def _taken(name: str, asked: str | None, capacity: Capacity, version: SchedulerVersion) -> Amount:
    """The amount that is consumed for ``asked``. None: the policy's default, or the full
    capacity."""
    policy = capacity.policy
    if asked is None:
        default = policy.default if policy else None
        amount = parse_amount(capacity.value if default is None else default)
    elif policy is None:
        amount = parse_amount(asked)
    elif policy.minimum is not None:
        amount = rounded_up(name, parse_amount(asked), policy, version)
    else:
        amount = _next_valid(parse_amount(asked), policy.valid_values)
    if version.refuses_invalid_amounts and amount.quantity.nano < 0:
        raise AllocationError(f"capacity {name!r}: capacity value is negative: {amount}")
    return amount


def _next_valid(asked: Amount, valid: Sequence[str]) -> Amount:
    amounts = (parse_amount(text) for text in valid)
    return next((one for one in amounts if asked.quantity <= one.quantity), asked)


def _violates(amount: Amount, policy: RequestPolicy, version: SchedulerVersion) -> bool:
    if policy.default is not None and is_same_to_go(amount, policy.default):
        return False
    if policy.minimum is not None or policy.maximum is not None or policy.step is not None:
        return is_out_of_range(amount, policy, version)
    valid = [parse_quantity(text) for text in policy.valid_values]
    return bool(valid) and amount.quantity not in valid
