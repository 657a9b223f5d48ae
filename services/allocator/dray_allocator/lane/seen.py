"""What one node sees: the slices that concern it, and who holds their devices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dray.domain import names
from dray.domain.devices import Capacity, DeviceId, ResourceSlice
from dray.domain.dra.asks import Holding
from dray.domain.dra.nodes import Reach
from dray.domain.dra.slices import Device, Slice
from dray_allocator.fit.capacity import amount_of
from dray_allocator.fit.devices import faults_of
from dray_allocator.fit.ledger import DeviceUse
from dray_allocator.placement.modes import FULL
from dray_allocator.state import AllocatorState


@dataclass(frozen=True, slots=True)
class Seen:
    """The slices and the holdings for one node."""

    slices: tuple[Slice, ...]
    holdings: tuple[Holding, ...]
    devices: int
    """How many there are on the slices."""
    unread: tuple[tuple[DeviceId, str], ...] = ()
    """Devices that are left out because something of them can't be read, and what."""


def seen_by(state: AllocatorState, node: str, *, fills: bool) -> Seen:
    """What ``node`` sees. Within a slice the devices are in the order of the placement: the
    fullest first, or the emptiest; those that are alike stay as the driver has them."""
    published = state.fleet.published_for(node)
    parts = [_part(known, full) for known, full in published]
    slices = tuple(_ordered(state, part, fills) for part in parts)
    holdings = tuple(_holdings(state, slices))
    unread = tuple(one for known, full in published if full is None for one in _unread(known))
    return Seen(slices, holdings, sum(len(part.devices) for part in slices), unread)


def _unread(known: ResourceSlice) -> Iterator[tuple[DeviceId, str]]:
    for device in known.devices:
        fault = ", ".join(faults_of(device))
        if fault:
            yield DeviceId(known.driver, known.pool, device.name), fault


def _part(known: ResourceSlice, full: Slice | None) -> Slice:
    """A slice in full, without what dray keeps others away with."""
    if full is None:
        full = Slice(
            known.name,
            known.driver,
            known.pool,
            known.generation,
            known.slice_count,
            Reach(known.node),
            devices=tuple(
                Device(
                    one.name,
                    dict(one.attributes),
                    one.capacity,
                    one.allow_multiple_allocations,
                    taints=one.taints,
                )
                for one in known.devices
                if not any(faults_of(one))
            ),
        )
    return replace(full, devices=tuple(_without_owner(one) for one in full.devices))


def _without_owner(device: Device) -> Device:
    taints = tuple(taint for taint in device.taints if taint.key != names.OWNER_TAINT)
    return device if len(taints) == len(device.taints) else replace(device, taints=taints)


def _ordered(state: AllocatorState, part: Slice, fills: bool) -> Slice:
    def key(device: Device) -> int:
        use = state.ledger.of(DeviceId(part.driver, part.pool, device.name))
        load = load_of(device.capacity, use)
        return -load if fills else load

    return replace(part, devices=tuple(sorted(part.devices, key=key)))


def load_of(capacity: Mapping[str, Capacity], use: DeviceUse) -> int:
    """The share in use of the capacity that is used most, in millionths."""
    if use.whole:
        return FULL
    load = 0
    for name, used in use.used.items():
        total = amount_of(capacity[name].value) if name in capacity else None
        if used and total:
            load = max(load, used * FULL // total)
    return load


def _holdings(state: AllocatorState, slices: Sequence[Slice]) -> Iterator[Holding]:
    """Who holds the devices of ``slices``, in sums; an ill device counts as held."""
    for part in slices:
        ill = dict.fromkeys(state.fleet.unhealthy(part.reach.node, part.driver))
        for device in part.devices:
            use = state.ledger.of(DeviceId(part.driver, part.pool, device.name))
            if use.whole or device.name in ill:
                yield Holding(part.driver, part.pool, device.name)
            elif use.shares:
                consumed = {name: f"{nano}n" for name, nano in use.used.items()}
                yield Holding(part.driver, part.pool, device.name, is_share=True, consumed=consumed)
