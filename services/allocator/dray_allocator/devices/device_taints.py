"""Taints of devices that slices do not say: those of rules come to them, and dray's own goes."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dray.api.devices import DeviceTaintRule, ResourceSlice, Taint
from dray.api.names import OWNER_TAINT


def tainted(part: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> ResourceSlice:
    """A slice with the taints of the rules behind its own, as Kubernetes' tracker of slices does
    it; as it is if none is about it."""
    added = {one.name: _added(part, one.name, rules) for one in part.devices}
    if not any(added.values()):
        return part
    devices = tuple(
        replace(one, taints=(*one.taints, *added[one.name])) if added[one.name] else one
        for one in part.devices
    )
    return replace(part, devices=devices)


def without_owner(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Taints but dray's own one, which is for other allocators."""
    if not any(one.key == OWNER_TAINT for one in taints):
        return taints
    return tuple([one for one in taints if one.key != OWNER_TAINT])


def _added(part: ResourceSlice, device: str, rules: Iterable[DeviceTaintRule]) -> tuple[Taint, ...]:
    selecting = (rule for rule in rules if rule.selects(part.driver, part.pool, device))
    return without_owner(tuple(rule.taint for rule in selecting))
