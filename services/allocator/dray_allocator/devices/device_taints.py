"""Add the taints of DeviceTaintRules to slices, and remove dray's own taint."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dray.api.devices import DeviceTaintRule, ResourceSlice, Taint
from dray.api.names import OWNER_TAINT


def tainted(part: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> ResourceSlice:
    """A slice with the taints of the rules after its own ones, as in Kubernetes' ResourceSlice
    tracker; the same object if no rule selects a device of it."""
    added = {one.name: _added(part, one.name, rules) for one in part.devices}
    if not any(added.values()):
        return part
    devices = tuple(
        replace(one, taints=(*one.taints, *added[one.name])) if added[one.name] else one
        for one in part.devices
    )
    return replace(part, devices=devices)


def without_owner(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """The taints without dray's own one, which keeps other allocators away."""
    if not any(one.key == OWNER_TAINT for one in taints):
        return taints
    return tuple([one for one in taints if one.key != OWNER_TAINT])


def _added(part: ResourceSlice, device: str, rules: Iterable[DeviceTaintRule]) -> tuple[Taint, ...]:
    selecting = (rule for rule in rules if rule.selects(part.driver, part.pool, device))
    return without_owner(tuple(rule.taint for rule in selecting))
