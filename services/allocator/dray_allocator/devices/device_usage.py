"""How much of each device claims use: committed allocations and unreleased reservations."""

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
    """How many of them use the whole device: those without consumed capacity and share ID."""
    used: dict[str, int] = field(default_factory=dict)


UNUSED = DeviceUse()


class Change(msgspec.Struct, frozen=True):
    """Devices of which more, and devices of which less is used than before."""

    taken: tuple[DeviceId, ...] = ()
    freed: tuple[DeviceId, ...] = ()


NO_CHANGE = Change()


class DeviceUsage:
    """Uses by claim. Setting a claim's use again replaces it, so order does not matter."""

    def __init__(self) -> None:
        self.version = 0
        """Increases with every change."""
        self._claims: dict[str, Allocation] = {}
        self._devices: dict[DeviceId, DeviceUse] = {}

    def of(self, device: DeviceId) -> DeviceUse:
        """The use of a device."""
        return self._devices.get(device, UNUSED)

    def claims(self) -> Iterator[tuple[str, Allocation]]:
        """Every claim that uses something."""
        return iter(self._claims.items())

    def has(self, claim_uid: str) -> bool:
        """Whether a claim has an allocation, even one without devices."""
        return claim_uid in self._claims

    def of_claim(self, claim_uid: str) -> tuple[AllocatedDevice, ...]:
        """The devices of a claim's allocation, including those with admin access."""
        allocation = self._claims.get(claim_uid)
        return allocation.devices if allocation is not None else ()

    def set(self, claim_uid: str, allocation: Allocation | None) -> Change:
        """Replace the allocation of a claim; returns the devices of which more or less is used."""
        before = self._claims.get(claim_uid)
        if before is None:
            return self._add_claim(claim_uid, allocation) if allocation is not None else NO_CHANGE
        if before == allocation:
            return NO_CHANGE
        if allocation is None:
            del self._claims[claim_uid]
        else:
            self._claims[claim_uid] = allocation
        old, new = _shares_of(before), _shares_of(allocation)
        if old == new:
            return NO_CHANGE
        self.version += 1
        for share in old:
            self._add(share, -1)
        for share in new:
            self._add(share, 1)
        return Change(
            tuple([share[0] for share in new if share not in old]),
            tuple([share[0] for share in old if share not in new]),
        )

    def _add_claim(self, claim_uid: str, allocation: Allocation) -> Change:
        self._claims[claim_uid] = allocation
        shares = _shares_of(allocation)
        if not shares:
            return NO_CHANGE
        self.version += 1
        for share in shares:
            self._add(share, 1)
        return Change(tuple([share[0] for share in shares]))

    def _add(self, share: "DeviceShare", sign: int) -> None:
        device, whole, amounts = share
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


DeviceShare = tuple[DeviceId, bool, tuple[tuple[str, int], ...]]


def _shares_of(allocation: Allocation | None) -> list[DeviceShare]:
    """The device shares of an allocation, with parsed quantities. Devices with admin access are
    not in use."""
    if allocation is None:
        return []
    found = [_share_of(share) for share in allocation.devices if not share.admin_access]
    return sorted(found) if len(found) > 1 else found


def _share_of(share: AllocatedDevice) -> DeviceShare:
    consumed = share.consumed
    if not consumed:
        return share.id, share.share_id is None, ()
    whole, amounts = _taken(*consumed, *consumed.values())
    return share.id, whole, amounts


@lru_cache(maxsize=4096)
def _taken(*consumed: str) -> tuple[bool, tuple[tuple[str, int], ...]]:
    """Whether the whole device is in use, as with a quantity that can't be parsed, and the amounts
    by capacity. Negative amounts count as 0.

    ``consumed``: the capacities, then the quantities; this is cached faster than pairs.
    """
    half = len(consumed) // 2
    named = zip(consumed[:half], consumed[half:], strict=True)
    amounts = sorted([(key, amount_of(text)) for key, text in named])
    whole = any(amount is None for _, amount in amounts)
    return whole, tuple([(key, amount) for key, amount in amounts if amount and amount > 0])
