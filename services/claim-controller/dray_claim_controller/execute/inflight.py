"""Allocations being written, held against all that the claims say. Nothing here awaits."""

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from dray.domain.devices import Device, DeviceId
from dray_claim_controller.execute.counting import PoolKey, overdrawn
from dray_claim_controller.execute.defence import Holding, double_sale
from dray_claim_controller.observe.counters import Counted
from dray_claim_controller.observe.picture import Picture


class InFlight:
    """Own writes whose outcome is not seen yet, by claim UID."""

    def __init__(self, picture: Picture, writes: Iterable[Holding] = ()) -> None:
        self._picture = picture
        self._writes = {holding.claim_uid: holding for holding in writes}
        self._fences: dict[str, int] = {}
        """The revision of the claim that each write is fenced by."""
        self._over_s: dict[str, float] = {}
        """Of writes whose outcome is unknown, from when on (monotonic) none is carried out."""

    @property
    def writes(self) -> tuple[Holding, ...]:
        """The allocations being written, or written with unknown outcome."""
        for uid in [uid for uid in self._fences if self._is_known(uid)]:
            self.leave(uid)
        return tuple(self._writes.values())

    def enter(self, holding: Holding, revision: int) -> None:
        """The allocation is being written, fenced by this ``revision`` of the claim."""
        self._writes[holding.claim_uid] = holding
        self._fences[holding.claim_uid] = revision
        self._over_s.pop(holding.claim_uid, None)

    def doubt(self, claim_uid: str, over_s: float) -> None:
        """The outcome of the write is unknown; by ``over_s`` (monotonic) the server is done."""
        self._over_s[claim_uid] = over_s

    def doubted_until_s(self, claim_uids: Iterable[str]) -> float | None:
        """When (monotonic) to read the claims to know what became of their writes; None: that is
        known of all."""
        open_uids = {holding.claim_uid for holding in self.writes}
        known = (self._over_s.get(uid) for uid in claim_uids if uid in open_uids)
        return max((over_s for over_s in known if over_s is not None), default=None)

    def read(self, claim_uid: str, asked_s: float) -> None:
        """The claim is seen as the server had it at ``asked_s`` (monotonic), or later."""
        if self._over_s.get(claim_uid, inf) <= asked_s:
            self.leave(claim_uid)

    def leave(self, claim_uid: str) -> None:
        """The claim's status tells by now, or the write surely did not happen."""
        self._writes.pop(claim_uid, None)
        self._fences.pop(claim_uid, None)
        self._over_s.pop(claim_uid, None)

    def _is_known(self, uid: str) -> bool:
        """Whether a write can't happen any more: the claim has moved on, or is gone."""
        seen = self._picture.claims.get(uid)
        return seen is None or seen.claim.resource_version > self._fences[uid]

    def problem(self, holding: Holding) -> str | None:
        """Why the allocation must not be written: see ``double_sale`` and ``overdrawn``."""
        ids = dict.fromkeys(device.id for device in holding.allocation.devices)
        pools = self._counters(ids)
        others = self._others([*ids, *_that_count(pools)])
        return double_sale(holding, others, self._devices(ids)) or overdrawn(holding, others, pools)

    def is_shareable(self, device_id: DeviceId) -> bool:
        """Whether the device is published as one that several claims may use."""
        device = self._picture.cards.device(device_id)
        return device is not None and device.allow_multiple_allocations

    def _others(self, ids: Iterable[DeviceId]) -> list[Holding]:
        uids = dict.fromkeys(
            uid for device in ids for uid in self._picture.cards.holders.get(device, ())
        )
        held = [(uid, self._picture.claims[uid].claim.allocation) for uid in uids]
        others = [Holding(uid, allocation) for uid, allocation in held if allocation is not None]
        return [*others, *self._writes.values()]

    def withheld(self, holding: Holding) -> str | None:
        """Why a device is given to nobody as long as it is unknown who holds it."""
        cards = self._picture.cards
        for device in dict.fromkeys(device.id for device in holding.allocation.devices):
            for slice_ in cards.slices_of(device.driver, device.pool):
                if holder := cards.possible_holder(slice_):
                    return f"device {device} may be held by claim {holder}, which can't be read"
        return None

    def _devices(self, ids: Iterable[DeviceId]) -> dict[DeviceId, Device]:
        found = {device_id: self._picture.cards.device(device_id) for device_id in ids}
        return {name: device for name, device in found.items() if device is not None}

    def _counters(self, ids: Iterable[DeviceId]) -> dict[PoolKey, Counted]:
        keys = dict.fromkeys((device.driver, device.pool) for device in ids)
        found = {key: self._picture.cards.counters_of(*key) for key in keys}
        return {key: pool for key, pool in found.items() if pool is not None}


def _that_count(pools: Mapping[PoolKey, Counted]) -> Iterator[DeviceId]:
    """All devices that take of the pools' counters."""
    for (driver, pool), counters in pools.items():
        for name in counters.uses:
            yield DeviceId(driver, pool, name)
