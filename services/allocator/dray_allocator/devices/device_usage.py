"""Who uses how much of each device: committed allocations and unreleased reservations."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import DeviceId
from dray_allocator.devices.published_capacity import amount_of


@dataclass(slots=True)
class DeviceUse:
    """The sum over the shares of one device. Amounts in billionths of a unit."""

    shares: int = 0
    whole: int = 0
    """Shares that take all of it: not shared, or without consumed capacity and share id."""
    used: dict[str, int] = field(default_factory=dict)


UNUSED = DeviceUse()


class Change(msgspec.Struct, frozen=True):
    """Devices of which more, and of which less, is used than before."""

    taken: tuple[DeviceId, ...] = ()
    freed: tuple[DeviceId, ...] = ()


NO_CHANGE = Change()


class DeviceUsage:
    """Uses by claim. Setting a claim's use again replaces it, so order does not matter."""

    def __init__(self) -> None:
        self.version = 0
        """Moves with every change."""
        self._claims: dict[str, Allocation] = {}
        self._devices: dict[DeviceId, DeviceUse] = {}

    def of(self, device: DeviceId) -> DeviceUse:
        """The use of a device."""
        return self._devices.get(device, UNUSED)

    def claims(self) -> Iterator[tuple[str, Allocation]]:
        """Every claim that uses something."""
        return iter(self._claims.items())

    def has(self, claim_uid: str) -> bool:
        """Whether a claim uses something, whatever it is worth."""
        return claim_uid in self._claims

    def of_claim(self, claim_uid: str) -> tuple[AllocatedDevice, ...]:
        """What a claim uses, whatever it is worth; administrators' looks included."""
        allocation = self._claims.get(claim_uid)
        return allocation.devices if allocation is not None else ()

    def set(self, claim_uid: str, allocation: Allocation | None) -> Change:
        """Replace what a claim uses; which devices it takes more of, and which less."""
        before = self._claims.get(claim_uid)
        if before is None:
            return self._begin(claim_uid, allocation) if allocation is not None else NO_CHANGE
        if before == allocation:
            return NO_CHANGE
        if allocation is None:
            del self._claims[claim_uid]
        else:
            self._claims[claim_uid] = allocation
        old, new = _weights(before), _weights(allocation)
        if old == new:
            return NO_CHANGE
        self.version += 1
        for weight in old:
            self._add(weight, -1)
        for weight in new:
            self._add(weight, 1)
        return Change(
            tuple([weight[0] for weight in new if weight not in old]),
            tuple([weight[0] for weight in old if weight not in new]),
        )

    def _begin(self, claim_uid: str, allocation: Allocation) -> Change:
        self._claims[claim_uid] = allocation
        weights = _weights(allocation)
        if not weights:
            return NO_CHANGE
        self.version += 1
        for weight in weights:
            self._add(weight, 1)
        return Change(tuple([weight[0] for weight in weights]))

    def _add(self, weight: "Weight", sign: int) -> None:
        device, whole, amounts = weight
        use = self._devices.get(device)
        if use is None:
            use = self._devices[device] = DeviceUse()
        use.shares += sign
        if whole:
            use.whole += sign
        used = use.used
        for key, amount in amounts:
            used[key] = used.get(key, 0) + sign * amount
        if not use.shares:
            del self._devices[device]


Weight = tuple[DeviceId, bool, tuple[tuple[str, int], ...]]


def _weights(allocation: Allocation | None) -> list[Weight]:
    """What an allocation takes, however its quantities are written; administrators look on
    without using anything."""
    if allocation is None:
        return []
    found = [_weight(share) for share in allocation.devices if not share.admin_access]
    return sorted(found) if len(found) > 1 else found


def _weight(share: AllocatedDevice) -> Weight:
    consumed = share.consumed
    if not consumed:
        return share.id, share.share_id is None, ()
    whole, amounts = _taken(*consumed, *consumed.values())
    return share.id, whole, amounts


@lru_cache(maxsize=4096)
def _taken(*consumed: str) -> tuple[bool, tuple[tuple[str, int], ...]]:
    """Whether nobody else may have any of the device, as where a status says something that can't
    be read, and amounts by capacity; one that says less than nothing gives nobody else more.

    ``consumed`` are the capacities, then the quantities: found sooner than pairs of them."""
    half = len(consumed) // 2
    named = zip(consumed[:half], consumed[half:], strict=True)
    amounts = sorted([(key, amount_of(text)) for key, text in named])
    whole = any(amount is None for _, amount in amounts)
    return whole, tuple([(key, amount) for key, amount in amounts if amount and amount > 0])
