"""Allocations being written, compared with everything that the claims say. Nothing here awaits."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from uuid import UUID, uuid5

import msgspec
from msgspec.structs import replace

from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import Device, DeviceId
from dray.messages.decisions import ClaimDecision
from dray_claim_controller.cache.counters import SharedCounters
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.execution.decisions.double_allocation_check import (
    ClaimHolding,
    DevicePool,
    double_allocation,
    overdrawn_counter,
)


class InFlightAllocations:
    """Own writes whose outcome is not seen yet, by claim UID."""

    def __init__(self, cache: ObjectCache, writes: Iterable[ClaimHolding] = ()) -> None:
        self._cache = cache
        self._writes = {holding.claim_uid: holding for holding in writes}
        self._fences: dict[str, int] = {}
        """The revision of the claim that each write is fenced by."""
        self._over_s: dict[str, float] = {}
        """By claim, for writes with an unknown outcome: the time after which none is carried out
        (monotonic)."""

    @property
    def writes(self) -> tuple[ClaimHolding, ...]:
        """The allocations being written, or written with unknown outcome."""
        for uid in [uid for uid in self._fences if self._is_known(uid)]:
            self.leave(uid)
        return tuple(self._writes.values())

    def enter(self, holding: ClaimHolding, revision: int) -> None:
        """The allocation is being written, fenced by this ``revision`` of the claim."""
        self._writes[holding.claim_uid] = holding
        self._fences[holding.claim_uid] = revision
        self._over_s.pop(holding.claim_uid, None)

    def doubt(self, claim_uid: str, over_s: float) -> None:
        """The outcome of the write is unknown; by ``over_s`` (monotonic) the server is done."""
        self._over_s[claim_uid] = over_s

    def doubted_until_s(self, claim_uids: Iterable[str]) -> float | None:
        """When (monotonic) to read the claims to learn the outcome of their writes; None: every
        outcome is known."""
        open_uids = {holding.claim_uid for holding in self.writes}
        known = (self._over_s.get(uid) for uid in claim_uids if uid in open_uids)
        return max((over_s for over_s in known if over_s is not None), default=None)

    def read(self, claim_uid: str, asked_s: float) -> None:
        """The claim was read in the state that the server had at ``asked_s`` (monotonic), or
        later."""
        if self._over_s.get(claim_uid, inf) <= asked_s:
            self.leave(claim_uid)

    def leave(self, claim_uid: str) -> None:
        """The claim's status now shows the write's result, or the write can't happen any more."""
        self._writes.pop(claim_uid, None)
        self._fences.pop(claim_uid, None)
        self._over_s.pop(claim_uid, None)

    def _is_known(self, uid: str) -> bool:
        """Whether a write can't happen any more: the claim has moved on, or is gone."""
        cached = self._cache.claims.get(uid)
        return cached is None or cached.claim.resource_version > self._fences[uid]

    def problem(self, holding: ClaimHolding) -> str | None:
        """Why the allocation must not be written, by ``double_allocation`` and
        ``overdrawn_counter``."""
        ids = dict.fromkeys(device.id for device in holding.allocation.devices)
        pools = self._counters(ids)
        others = self._others([*ids, *_devices_with_counters(pools)])
        return double_allocation(holding, others, self._devices(ids)) or overdrawn_counter(
            holding, others, pools
        )

    def is_shareable(self, device_id: DeviceId) -> bool:
        """Whether the device is published as one that several claims may use."""
        device = self._cache.devices.device(device_id)
        return device is not None and device.allow_multiple_allocations

    def _others(self, ids: Iterable[DeviceId]) -> list[ClaimHolding]:
        uids = dict.fromkeys(
            uid for device in ids for uid in self._cache.devices.holders.get(device, ())
        )
        held = [(uid, self._cache.claims[uid].claim.allocation) for uid in uids]
        others = [
            ClaimHolding(uid, allocation) for uid, allocation in held if allocation is not None
        ]
        return [*others, *self._writes.values()]

    def withheld(self, holding: ClaimHolding) -> str | None:
        """Why a device of the allocation is withheld: a claim that can't be read may hold it; None:
        no device is."""
        cards = self._cache.devices
        for device in dict.fromkeys(device.id for device in holding.allocation.devices):
            for slice_ in cards.slices_of(device.driver, device.pool):
                if holder := cards.possible_holder(slice_):
                    return f"device {device} may be held by claim {holder}, which can't be read"
        return None

    def _devices(self, ids: Iterable[DeviceId]) -> dict[DeviceId, Device]:
        found = {device_id: self._cache.devices.device(device_id) for device_id in ids}
        return {name: device for name, device in found.items() if device is not None}

    def _counters(self, ids: Iterable[DeviceId]) -> dict[DevicePool, SharedCounters]:
        keys = dict.fromkeys((device.driver, device.pool) for device in ids)
        found = {key: self._cache.devices.counters_of(*key) for key in keys}
        return {key: pool for key, pool in found.items() if pool is not None}


def _devices_with_counters(pools: Mapping[DevicePool, SharedCounters]) -> Iterator[DeviceId]:
    """All devices that consume the pools' counters."""
    for (driver, pool), counters in pools.items():
        for name in counters.uses:
            yield DeviceId(driver, pool, name)


_NAMESPACE = UUID("2d4c1a52-6a64-5f0e-8a34-6f1f0d7b9e11")


def with_shares(decision: ClaimDecision, is_shareable: Callable[[DeviceId], bool]) -> Allocation:
    """The allocation with a share id on every share.

    The id is made of claim, attempt, request, device and position, so that a repeated write has the
    same id.
    """
    devices = tuple(
        _with_share(decision, index, device, is_shareable)
        for index, device in enumerate(decision.allocation.devices)
    )
    return replace(decision.allocation, devices=devices)


def _with_share(
    decision: ClaimDecision,
    index: int,
    device: AllocatedDevice,
    is_shareable: Callable[[DeviceId], bool],
) -> AllocatedDevice:
    shares = bool(device.consumed) or is_shareable(device.id)
    if device.share_id is not None or not shares:
        return device
    text = f"{decision.uid}.{decision.attempt}/{device.request}/{device.id}/{index}"
    return replace(device, share_id=str(uuid5(_NAMESPACE, text)))


class Checked(msgspec.Struct, frozen=True, omit_defaults=True):
    """An allocation ready to be written, or why it must not be."""

    allocation: Allocation
    problem: str | None
    is_withheld: bool = False
    """Whether the problem is a claim that can't be read and may hold a device."""


class CommitCheck(RecordedRule[Checked], frozen=True, kw_only=True, tag="may-commit"):
    """Whether writing the allocation would allocate a device twice."""

    claim: ClaimDecision
    in_flight: tuple[ClaimHolding, ...] = ()
    """This process's writes whose result is not known yet."""

    def answer(self, cache: ObjectCache) -> Checked:
        in_flight = InFlightAllocations(cache, self.in_flight)
        allocation = with_shares(self.claim, in_flight.is_shareable)
        holding = ClaimHolding(self.claim.uid, allocation)
        if problem := in_flight.problem(holding):
            return Checked(allocation, problem)
        withheld = in_flight.withheld(holding)
        return Checked(allocation, withheld, is_withheld=withheld is not None)
