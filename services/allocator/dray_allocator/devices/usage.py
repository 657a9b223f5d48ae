"""What decided pods use: devices per claim, and resources of nodes per pod.

``UsageLedger`` counts committed allocations and reservations that have not ended. ``AssumedPods``
counts pods that the observed sums of their nodes do not contain yet. Loads are whole numbers, for
replay.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache, reduce
from typing import Final

import msgspec

from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import DeviceId
from dray.api.pods import HostPort
from dray.api.quantities import Quantity
from dray_allocator.devices.capacity import Demand
from dray_allocator.devices.published_capacity import amount_of
from dray_allocator.devices.published_devices import Card

FULL: Final = 1_000_000
"""Loads are in millionths."""
MOST_LOAD: Final = 2**22 - 1
"""The upper limit of a load; a device that is allocated twice as a whole has 2 000 000."""


class DeviceUse(msgspec.Struct, frozen=True, gc=False):
    """The sum over the shares of one device. Amounts in billionths of a unit."""

    shares: int = 0
    whole: int = 0
    """How many of them use the whole device: those without consumed capacity and share ID."""
    used: dict[str, int] = msgspec.field(default_factory=dict)
    """Read-only: devices with equal uses may share it."""


UNUSED: Final = DeviceUse()
_WHOLE: Final = DeviceUse(1, 1)
_NO_AMOUNT: Final = DeviceUse(1)


class Change(msgspec.Struct, frozen=True):
    """Devices that are used more, and devices that are used less than before."""

    taken: tuple[DeviceId, ...] = ()
    freed: tuple[DeviceId, ...] = ()


_NO_CHANGE = Change()


class UsageLedger:
    """Uses by claim. Setting a claim's use again replaces it, so order does not matter."""

    def __init__(self) -> None:
        self.version = 0
        """Increases with every change."""
        self._claims: dict[str, Allocation] = {}
        self.devices: dict[DeviceId, DeviceUse] = {}
        """The devices in use. Read-only."""

    def of(self, device: DeviceId) -> DeviceUse:
        """The use of a device."""
        return self.devices.get(device, UNUSED)

    def has_room(self, card: Card, demand: Demand) -> bool:
        """Whether a device has ``demand`` left."""
        use = self.devices.get(card.id)
        if use is None:
            return demand.fits_unused
        if use.whole or not card.device.allow_multiple_allocations:
            return not use.shares
        used, totals = use.used, demand.totals
        for name, taken in demand.nano.items():  # noqa: SIM110 - a generator takes twice as long
            if taken + used.get(name, 0) > totals[name]:
                return False
        return True

    def double_allocation(self, device: DeviceId, card: Card | None) -> str:
        """Describe how a device is allocated more than once; empty if it is not. ``card``: None if
        it is not published."""
        if not device.is_whole:
            return ""  # It stands for a device of an allocation that can't be read.
        use = self.of(device)
        if use.shares > 1 and (use.whole or (card and not card.device.allow_multiple_allocations)):
            return f"{device} is allocated exclusively but has {use.shares} users"
        if card is None:
            return ""
        for key, amount in use.used.items():
            if amount > card.shape.totals.get(key, amount):
                seen = Quantity(amount, binary=True)
                return f"{device} has {card.device.capacity[key].value} of {key}, {seen} are in use"
        return ""

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
        """Replace the allocation of a claim; returns the devices whose usage changed."""
        before = self._claims.get(claim_uid)
        if before is None:
            return self._add_claim(claim_uid, allocation) if allocation is not None else _NO_CHANGE
        if before is allocation or before == allocation:
            return _NO_CHANGE
        if allocation is None:
            del self._claims[claim_uid]
        else:
            self._claims[claim_uid] = allocation
        freed, taken = _shares_of(before), list[DeviceShare]()
        for share in _shares_of(allocation):
            if share in freed:
                freed.remove(share)
            else:
                taken.append(share)
        if not taken and not freed:
            return _NO_CHANGE
        self.version += 1
        for device, use in freed:
            self._add(device, use, -1)
        for device, use in taken:
            self._add(device, use, 1)
        return Change(tuple([share[0] for share in taken]), tuple([share[0] for share in freed]))

    def _add_claim(self, claim_uid: str, allocation: Allocation) -> Change:
        self._claims[claim_uid] = allocation
        shares = _shares_of(allocation)
        if not shares:
            return _NO_CHANGE
        self.version += 1
        for device, use in shares:
            self._add(device, use, 1)
        return Change(tuple([share[0] for share in shares]))

    def _add(self, device: DeviceId, more: DeviceUse, sign: int) -> None:
        use = self.devices.get(device)
        if use is None:
            self.devices[device] = more
            return
        shares = use.shares + sign
        if not shares:
            del self.devices[device]
            return
        used = dict(use.used)
        for key, amount in more.used.items():
            used[key] = used.get(key, 0) + sign * amount
        self.devices[device] = DeviceUse(shares, use.whole + sign * more.whole, used)


DeviceShare = tuple[DeviceId, DeviceUse]
"""A device, and its use if it had no other share."""


def _shares_of(allocation: Allocation | None) -> list[DeviceShare]:
    """The device shares of an allocation, with parsed quantities. Devices with admin access are
    not in use."""
    found: list[DeviceShare] = []
    before: Mapping[str, str] | None = None
    use = UNUSED
    for share in () if allocation is None else allocation.devices:
        if share.admin_access:
            continue
        consumed = share.consumed
        if not consumed:
            use = _WHOLE if share.share_id is None else _NO_AMOUNT
        elif consumed != before:  # Often equal: the devices of one request.
            use = _use_of(*consumed, *consumed.values())
        before = consumed
        found.append((share.id, use))
    return found


@lru_cache(maxsize=4096)
def _use_of(*consumed: str) -> DeviceUse:
    """The use of a device by one share. If a quantity can't be parsed, the share uses the whole
    device. Negative amounts count as 0.

    ``consumed``: the capacities, then the quantities; this is cached faster than pairs.
    """
    half = len(consumed) // 2
    named = zip(consumed[:half], consumed[half:], strict=True)
    amounts = sorted([(key, amount_of(text)) for key, text in named])
    whole = any(amount is None for _, amount in amounts)
    used = {key: amount for key, amount in amounts if amount and amount > 0}
    return DeviceUse(1, int(whole), used)


def load_of(totals: Mapping[str, int], use: DeviceUse) -> int:
    """The load of a device, in millionths: the used share of its most used capacity.

    ``totals``: its capacities, in billionths.
    """
    if use.whole:
        return FULL
    load = 0
    for key, amount in use.used.items():
        if amount:
            total = totals.get(key)
            if total:
                share = amount * FULL // total
                if share > load:
                    load = share
    return load


class AssumedResources(msgspec.Struct, frozen=True, gc=False):
    """The resources of assumed pods on one node."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    resources: dict[str, int] = msgspec.field(default_factory=dict)
    """All other resources, as in ``dray.api.pods.PodNeeds.resources``."""
    ports: tuple[HostPort, ...] = ()


NOTHING: Final = AssumedResources()
FULL_NODE: Final = AssumedResources(pods=2**40)
"""More pods than a node can run, so that no other pod is placed there."""


class AssumedPods:
    """The assumed pods with their nodes and resources."""

    def __init__(self) -> None:
        self.version = 0
        """Increases with every change."""
        self._pods: dict[str, tuple[str, AssumedResources]] = {}
        self._nodes: dict[str, dict[str, AssumedResources]] = {}
        self.sums: dict[str, AssumedResources] = {}
        """By node, the sum of the resources of assumed pods. Read-only."""

    def on(self, node: str) -> AssumedResources:
        """The sum of the resources of assumed pods on a node."""
        return self.sums.get(node, NOTHING)

    def has(self, pod_uid: str) -> bool:
        """Whether a pod is assumed."""
        return pod_uid in self._pods

    def pods(self) -> tuple[str, ...]:
        """All assumed pods."""
        return tuple(self._pods)

    def pods_on(self, node: str) -> tuple[str, ...]:
        """The assumed pods on a node."""
        return tuple(self._nodes.get(node, ()))

    def add(self, pod_uid: str, node: str, assumed: AssumedResources) -> bool:
        """Assume a pod; False if it is assumed already."""
        if pod_uid in self._pods:
            return False
        self.version += 1
        self._add(pod_uid, node, assumed)
        return True

    def set(self, pod_uid: str, node: str, assumed: AssumedResources | None) -> str:
        """Assume a pod, replace its resources, or forget it if ``assumed`` is None. Returns the
        node on which resources were freed, or an empty string."""
        before = self._pods.pop(pod_uid, None)
        if before is None:
            if assumed is not None:
                self.version += 1
                self._add(pod_uid, node, assumed)
            return ""
        after = None if assumed is None else (node, assumed)
        if before == after:
            self._pods[pod_uid] = before
            return ""
        self.version += 1
        there = self._nodes[before[0]]
        del there[pod_uid]
        self.sums[before[0]] = reduce(plus, there.values(), NOTHING)
        if assumed is not None:
            self._add(pod_uid, node, assumed)
        return before[0]

    def _add(self, pod_uid: str, node: str, assumed: AssumedResources) -> None:
        self._pods[pod_uid] = node, assumed
        there = self._nodes.get(node)
        if there is None:
            there = self._nodes[node] = {}
        there[pod_uid] = assumed
        self.sums[node] = plus(self.on(node), assumed)


def plus(some: AssumedResources, more: AssumedResources) -> AssumedResources:
    """The resources of both."""
    return AssumedResources(
        some.cpu_milli + more.cpu_milli,
        some.memory_bytes + more.memory_bytes,
        some.pods + more.pods,
        _sums(some.resources, more.resources) if more.resources else some.resources,
        some.ports + more.ports,
    )


def _sums(some: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return some | {name: some.get(name, 0) + amount for name, amount in more.items()}
