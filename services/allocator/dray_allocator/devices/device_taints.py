"""Taints that rules put on devices from outside, as Kubernetes' tracker of slices does it."""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from dray.api.devices import ResourceSlice, Taint
from dray.api.dra.slices import Slice, TaintRule


def tainted(
    part: ResourceSlice, in_full: Slice | None, rules: Sequence[TaintRule]
) -> tuple[ResourceSlice, Slice | None]:
    """A slice, in both forms, with the taints of the rules behind its own; as it is where none is
    about it."""
    added = {one.name: _added(part, one.name, rules) for one in part.devices}
    if not any(added.values()):
        return part, in_full
    devices = tuple(
        structs.replace(one, taints=(*one.taints, *added[one.name])) if added[one.name] else one
        for one in part.devices
    )
    if in_full is not None:
        whole = tuple(
            replace(one, taints=(*one.taints, *added.get(one.name, ()))) for one in in_full.devices
        )
        in_full = replace(in_full, devices=whole)
    return structs.replace(part, devices=devices), in_full


def _added(part: ResourceSlice, device: str, rules: Sequence[TaintRule]) -> tuple[Taint, ...]:
    return tuple(rule.taint for rule in rules if rule.selects(part.driver, part.pool, device))
