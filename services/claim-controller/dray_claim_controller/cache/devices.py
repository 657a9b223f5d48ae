"""Published devices, and which claims hold them. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from dray.api.claims import Allocation, Claim
from dray.api.devices import Device, DeviceId, ResourceSlice
from dray.api.names import qualified
from dray_claim_controller.cache.changes import enter, leave
from dray_claim_controller.cache.counters import SharedCounters, merge_counters, shared_counters

_UUID: Final = "uuid"


def uuid_of(device_id: DeviceId, device: Device | None) -> str:
    """The UUID of a device; its name if it is not published (any more)."""
    attributes = {} if device is None else device.attributes
    found = attributes.get(_UUID, attributes.get(qualified(_UUID)))
    return str(found) if found else device_id.device


class DeviceCache:
    """Slices by name, and holders by device."""

    def __init__(self) -> None:
        self.slices: dict[str, tuple[ResourceSlice, int]] = {}
        """By name, with the revision at which each was seen."""
        self.holders: dict[DeviceId, dict[str, None]] = {}
        """UIDs of the claims that hold a device, by status."""
        self.sums: dict[tuple[str, str], dict[str, Any]] = {}
        """Sums over a pool's devices, by driver and pool, then by node; forgotten when one of the
        devices or its holders change."""
        self._counted: dict[str, SharedCounters] = {}
        """The counters of the slices that have some, by slice name."""
        self._slices_of_pool: dict[tuple[str, str], dict[str, None]] = {}
        self._slices_of_node: dict[str, dict[str, None]] = {}
        """By node, the names of the slices that name it."""
        self._on: dict[str, dict[str, None]] = {}
        """By node, the UIDs of the claims that hold something there, published or not."""
        self._vague: dict[str, Claim] = {}
        """Claims whose devices can't all be read, so that it is unknown which devices they hold."""

    def device(self, device_id: DeviceId) -> Device | None:
        """A published device, from the newest generation of its pool."""
        found: tuple[int, Device] | None = None
        for name in self._slices_of_pool.get((device_id.driver, device_id.pool), ()):
            observed = self.slices[name][0]
            if found is not None and found[0] >= observed.generation:
                continue
            for device in observed.devices:
                if device.name == device_id.device:
                    found = (observed.generation, device)
        return None if found is None else found[1]

    def devices_of(self, driver: str, pool: str) -> tuple[Device, ...]:
        """The devices in the newest generation of a driver's pool."""
        names = self._slices_of_pool.get((driver, pool), ())
        parts = [self.slices[name][0] for name in names]
        newest = max((part.generation for part in parts), default=0)
        return tuple(
            device for part in parts if part.generation == newest for device in part.devices
        )

    def slices_of(self, driver: str, pool: str) -> list[ResourceSlice]:
        """The slices of a pool, of all its generations."""
        return [self.slices[name][0] for name in self._slices_of_pool.get((driver, pool), ())]

    def slices_on(self, node: str) -> list[ResourceSlice]:
        """The slices that name a node, of all drivers."""
        return [self.slices[name][0] for name in self._slices_of_node.get(node, ())]

    def possible_holder(self, slice_: ResourceSlice) -> str:
        """A claim, as ``namespace/name``, that may hold any device of the slice, because the
        readable part of its allocation does not say which; empty if there is none."""
        for claim in self._vague.values():
            if claim.allocation is not None and any(
                _may_hold(claim.allocation, device.id, slice_)
                for device in claim.allocation.devices
            ):
                return f"{claim.namespace}/{claim.name}"
        return ""

    def holders_on(self, node: str) -> Iterable[str]:
        """UIDs of the claims that hold devices of a node."""
        return self._on.get(node, ())

    def counters_of(self, driver: str, pool: str) -> SharedCounters | None:
        """The counters that a pool's devices share, from its newest slices that have some."""
        names = [
            name for name in self._slices_of_pool.get((driver, pool), ()) if name in self._counted
        ]
        newest = max((self.slices[name][0].generation for name in names), default=0)
        parts = [self._counted[name] for name in names if self.slices[name][0].generation == newest]
        return merge_counters(parts) if parts else None

    def keep(self, name: str, observed: ResourceSlice, revision: int) -> None:
        """A slice was published, or changed."""
        before = self.slices.get(name)
        if before is not None and _place(before[0]) != _place(observed):
            self.forget(name)
        self.slices[name] = (observed, revision)
        self._counted.pop(name, None)
        if (counters := shared_counters(observed)) is not None:
            self._counted[name] = counters
        pool = (observed.driver, observed.pool)
        enter(self._slices_of_pool, pool, name)
        enter(self._slices_of_node, observed.node, name)
        self.sums.pop(pool, None)

    def forget(self, name: str) -> None:
        """A slice is gone."""
        observed, _ = self.slices.pop(name)
        self._counted.pop(name, None)
        leave(self._slices_of_pool, (observed.driver, observed.pool), name)
        leave(self._slices_of_node, observed.node, name)
        self.sums.pop((observed.driver, observed.pool), None)

    def hold(self, before: Claim | None, after: Claim | None) -> None:
        """A claim changed, and with it perhaps the devices that it holds; None: the claim did not
        exist before, or is gone."""
        self.place(before, after)
        for claim, holds in ((before, False), (after, True)):
            if claim is None or claim.allocation is None:
                continue
            for device in claim.allocation.devices:
                self.sums.pop((device.id.driver, device.id.pool), None)
                if holds:
                    enter(self.holders, device.id, claim.uid)
                else:
                    leave(self.holders, device.id, claim.uid)

    def place(self, before: Claim | None, after: Claim | None) -> None:
        """A claim holds devices on other nodes than before."""
        for claim, holds in ((before, False), (after, True)):
            if claim is None:
                continue
            for node in nodes_of(claim):
                if holds:
                    enter(self._on, node, claim.uid)
                else:
                    leave(self._on, node, claim.uid)
            if holds and is_vague(claim):
                self._vague[claim.uid] = claim
            else:
                self._vague.pop(claim.uid, None)


def _place(slice_: ResourceSlice) -> tuple[str, str, str]:
    return slice_.driver, slice_.pool, slice_.node


def is_vague(claim: Claim | None) -> bool:
    """Whether a claim holds devices that can't all be read."""
    held = claim.allocation if claim is not None else None
    return held is not None and not all(device.id.is_whole for device in held.devices)


def _may_hold(allocation: Allocation, device: DeviceId, slice_: ResourceSlice) -> bool:
    """Decided by the device's pool if it is known, else by the allocation's node."""
    if device.is_whole or not device.may_be(slice_.driver, slice_.pool):
        return False
    return bool(device.pool) or not allocation.node or slice_.node in ("", allocation.node)


def nodes_of(claim: Claim) -> tuple[str, ...]:
    """The nodes on which a claim holds devices. A DRA pool has its node's name; if a driver names
    its pools otherwise, the allocation names the node."""
    if claim.allocation is None:
        return ()
    pools = (device.id.pool for device in claim.allocation.devices)
    return tuple(dict.fromkeys((*pools, claim.allocation.node)))
