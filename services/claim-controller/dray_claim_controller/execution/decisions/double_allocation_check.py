"""Checks that a write does not allocate a device twice. Pure.

The API server checks no capacity. Right before an allocation is written, its devices are compared
with all observed claim statuses and with own writes whose outcome is not observed yet; counters
that devices share are compared with the counters of their pool's slices.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import Device, DeviceId
from dray.api.quantities import InvalidQuantityError, Quantity, parse_quantity
from dray_claim_controller.cache.counters import SharedCounters


@dataclass(frozen=True, slots=True)
class ClaimHolding:
    """The devices of one claim."""

    claim_uid: str
    allocation: Allocation


def double_allocation(
    wanted: ClaimHolding, others: Iterable[ClaimHolding], devices: Mapping[DeviceId, Device]
) -> str | None:
    """Why ``wanted`` must not be written, or None.

    ``others`` may contain a claim twice (its status and a write in flight), and ``wanted`` itself.
    The last entry of a claim counts, and ``wanted`` is never compared with itself. Admin access
    consumes nothing.
    """
    held = {other.claim_uid: other for other in others if other.claim_uid != wanted.claim_uid}
    for device_id in dict.fromkeys(device.id for device in wanted.allocation.devices):
        own = wanted.allocation.shares_of(device_id)
        foreign = [
            share for other in held.values() for share in other.allocation.shares_of(device_id)
        ]
        if own and (problem := _problem(device_id, own, foreign, devices.get(device_id))):
            return problem
    return None


def suffices(device: Device, shares: Sequence[AllocatedDevice]) -> bool:
    """Whether the device has enough capacity for all of these shares."""
    if not device.allow_multiple_allocations:
        return len(shares) <= 1
    return _overdrawn(device, shares) is None


def _problem(
    device_id: DeviceId,
    own: list[AllocatedDevice],
    foreign: list[AllocatedDevice],
    device: Device | None,
) -> str | None:
    if device is None:
        return f"device {device_id} is no longer published"
    if not device.allow_multiple_allocations:
        if foreign or len(own) > 1:
            return f"device {device_id} can't be shared and is held already"
        return None
    if (overdrawn := _overdrawn(device, [*own, *foreign])) is not None:
        name, taken = overdrawn
        return (
            f"device {device_id} has {device.capacity[name].value} of {name}, and {taken} would "
            f"be consumed by this claim and {len(foreign)} others"
        )
    return None


def _overdrawn(device: Device, shares: Sequence[AllocatedDevice]) -> tuple[str, Quantity] | None:
    """A capacity that is exceeded, and its sum."""
    for name, capacity in device.capacity.items():
        taken = _sum(name, shares)
        if taken.nano > _amount(capacity.value).nano:
            return name, taken
    return None


def _sum(capacity: str, shares: Sequence[AllocatedDevice]) -> Quantity:
    total = Quantity(0)
    for share in shares:
        for name, text in share.consumed.items():
            if name == capacity or name.rpartition("/")[2] == capacity.rpartition("/")[2]:
                total = total + _amount(text)
    return total


def _amount(text: str) -> Quantity:
    """A quantity; 0 if it is invalid."""
    try:
        return parse_quantity(text)
    except InvalidQuantityError:
        return Quantity(0)


DevicePool = tuple[str, str]
"""Driver and pool."""
CounterName = tuple[str, str]
"""Counter set and counter."""


def overdrawn_counter(
    wanted: ClaimHolding, others: Iterable[ClaimHolding], pools: Mapping[DevicePool, SharedCounters]
) -> str | None:
    """Why ``wanted`` must not be written, or None.

    ``others`` are as in ``double_allocation``. Only published counters that ``wanted`` consumes are
    checked: a pool that is being updated may lack some. A device counts once, however many of its
    shares are allocated; admin access consumes nothing.
    """
    mine = _devices(wanted)
    holdings = {other.claim_uid: other for other in others}
    holdings[wanted.claim_uid] = wanted
    held = {device: None for holding in holdings.values() for device in _devices(holding)}
    touched = dict.fromkeys((device.driver, device.pool) for device in mine)
    problems = (_counter_problem(key, pools[key], mine, held) for key in touched if key in pools)
    return next(filter(None, problems), None)


def _devices(holding: ClaimHolding) -> dict[DeviceId, None]:
    shares = holding.allocation.devices
    return dict.fromkeys(share.id for share in shares if not share.admin_access)


def _counter_problem(
    key: DevicePool, pool: SharedCounters, mine: Iterable[DeviceId], held: Iterable[DeviceId]
) -> str | None:
    touched = _counter_amounts(key, pool, mine)
    for counter, taken in _counter_amounts(key, pool, held).items():
        published = pool.sets.get(counter)
        if counter in touched and published is not None and taken.nano > _amount(published).nano:
            return (
                f"counter {counter[1]} of {counter[0]} of pool {'/'.join(key)} is {published}, "
                f"and {taken} of it would be consumed"
            )
    return None


def _counter_amounts(
    key: DevicePool, pool: SharedCounters, devices: Iterable[DeviceId]
) -> dict[CounterName, Quantity]:
    sums: dict[CounterName, Quantity] = {}
    for device in devices:
        for use in pool.uses.get(device.device, ()) if (device.driver, device.pool) == key else ():
            for counter, text in use.counters.items():
                name = (use.counter_set, counter)
                sums[name] = sums.get(name, Quantity(0)) + _amount(text)
    return sums
