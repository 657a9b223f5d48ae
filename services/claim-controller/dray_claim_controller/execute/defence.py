"""The second line of defence: would this write sell a device twice? Pure.

The API server checks no capacity. Right before an allocation is written, its devices are held
against all claim statuses seen and against own writes whose outcome is not seen yet; ``counting``
does so with the counters that devices share.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dray.domain.claims import AllocatedDevice, Allocation
from dray.domain.devices import Device, DeviceId
from dray.domain.quantities import InvalidQuantityError, Quantity, parse_quantity


@dataclass(frozen=True, slots=True)
class Holding:
    """What one claim takes of devices."""

    claim_uid: str
    allocation: Allocation


def double_sale(
    wanted: Holding, others: Iterable[Holding], devices: Mapping[DeviceId, Device]
) -> str | None:
    """Why ``wanted`` must not be written, or None.

    ``others`` may name a claim twice (status and write in flight) and ``wanted`` itself; the
    last one counts, and ``wanted`` never against itself. Administrative access takes nothing.
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
    """Whether the device has enough for all of these shares of it."""
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
        return f"device {device_id} is not published any more"
    if not device.allow_multiple_allocations:
        if foreign or len(own) > 1:
            return f"device {device_id} can't be shared and is held already"
        return None
    if (overdrawn := _overdrawn(device, [*own, *foreign])) is not None:
        name, taken = overdrawn
        return (
            f"device {device_id} has {device.capacity[name].value} of {name}, and {taken} would "
            f"be taken by {len(foreign)} claims beside this one"
        )
    return None


def _overdrawn(device: Device, shares: Sequence[AllocatedDevice]) -> tuple[str, Quantity] | None:
    """A capacity of which more is taken than the device has, and how much."""
    for name, capacity in device.capacity.items():
        taken = _sum(name, shares)
        if taken.nano > amount(capacity.value).nano:
            return name, taken
    return None


def _sum(capacity: str, shares: Sequence[AllocatedDevice]) -> Quantity:
    total = Quantity(0)
    for share in shares:
        for name, text in share.consumed.items():
            if name == capacity or name.rpartition("/")[2] == capacity.rpartition("/")[2]:
                total = total + amount(text)
    return total


def amount(text: str) -> Quantity:
    """A quantity; nothing where it is none."""
    try:
        return parse_quantity(text)
    except InvalidQuantityError:
        return Quantity(0)
