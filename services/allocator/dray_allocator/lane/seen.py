"""What one node sees: the slices that concern it, and who holds their devices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dray.domain.devices import Capacity, DeviceId
from dray.domain.dra.asks import Holding
from dray.domain.dra.slices import Device, Slice
from dray_allocator.fit.capacity import amount_of
from dray_allocator.fit.ledger import DeviceUse
from dray_allocator.lane.parts import part_of
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
    parts = [
        state.fleet.remembered(known.name, partial(part_of, known, full))
        for known, full in state.fleet.published_for(node)
    ]
    slices = tuple(_ordered(state, one.slice, fills) for one in parts)
    holdings = tuple(_holdings(state, slices))
    unread = tuple(fault for one in parts for fault in one.unread)
    return Seen(slices, holdings, sum(len(part.devices) for part in slices), unread)


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
