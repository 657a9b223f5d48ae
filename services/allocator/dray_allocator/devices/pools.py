"""Gather slices into the pools that a node sees, and check that they are complete and valid."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dray.api.devices import CounterSet, Device, ResourceSlice
from dray.api.pods import Node
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.node_selection import is_reached
from dray_allocator.devices.versions import SchedulerVersion


@dataclass(frozen=True, slots=True)
class ResourcePool:
    """The newest generation of one pool of a driver, as one node sees it."""

    driver: str
    name: str
    slices: tuple[ResourceSlice, ...] = ()
    """Slices for this node, in the order in which their devices are tried."""
    other_slices: tuple[ResourceSlice, ...] = ()
    """Slices for other nodes: their devices may consume counters of the pool."""
    counter_sets: dict[str, CounterSet] = field(default_factory=dict)
    incomplete: bool = False
    """Whether some of its slices are not published (yet)."""
    invalid: str = ""
    """Why it is invalid; empty if it is valid."""

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"

    @property
    def has_binding_conditions(self) -> bool:
        """Whether a pod with one of its devices waits for binding conditions before it is bound."""
        return any(device.binding_conditions is not None for _, device in self.devices())

    def devices(self) -> Iterator[tuple[ResourceSlice, Device]]:
        """The devices of the slices for this node, in the order in which they are tried."""
        for part in self.slices:
            for device in part.devices:
                yield part, device


def gather(
    slices: Sequence[ResourceSlice], node: Node, version: SchedulerVersion
) -> list[ResourcePool]:
    """The pools that ``node`` sees, in the order in which they are tried.

    Raises:
        AllocationError: a node selector can't be parsed.
    """
    seen: dict[tuple[str, str], list[ResourceSlice]] = {}
    for part in _in_order(slices, node, version):
        if _is_seen(part, node, version):
            _add(seen.setdefault((part.driver, part.pool), []), part)
    found = (_pool(parts, slices, version) for parts in seen.values())
    pools = sorted((pool for pool in found if pool), key=lambda pool: (pool.driver, pool.name))
    if version.sorts:
        pools.sort(key=lambda pool: pool.has_binding_conditions)
    return pools


def _in_order(
    slices: Sequence[ResourceSlice], node: Node, version: SchedulerVersion
) -> Iterator[ResourceSlice]:
    """The slices for this node only, then the slices for several nodes."""
    if not version.sorts:
        yield from slices
        return
    own = [part for part in slices if _is_of_one_node(part, version)]
    yield from (part for part in own if part.node == node.name)
    yield from (part for part in slices if not _is_of_one_node(part, version))


def _is_of_one_node(part: ResourceSlice, version: SchedulerVersion) -> bool:
    everywhere = version.counter_sets_seen_everywhere and part.counter_sets
    return bool(part.node) and not everywhere


def _is_seen(part: ResourceSlice, node: Node, version: SchedulerVersion) -> bool:
    if not version.partitionable and (
        part.per_device_reach is not None or _has_hidden_counters(part, version)
    ):
        return False
    if version.knows_compatibility_groups and _has_groups(part):
        return False
    if part.counter_sets and version.counter_sets_seen_everywhere:
        return True
    try:
        if part.reach.is_stated:
            return is_reached(part.reach, node)
        if part.per_device_reach:
            return any(is_reached(device.reach, node) for device in part.devices)
    except AllocationError as error:
        raise AllocationError(f"slice {part.name}: {error}") from None
    return False


def _has_hidden_counters(part: ResourceSlice, version: SchedulerVersion) -> bool:
    return bool(part.counter_sets) and not version.sees_own_slices_only


def _has_groups(part: ResourceSlice) -> bool:
    uses = (use for device in part.devices for use in device.consumes)
    return any(use.compatibility_groups for use in uses)


def _add(parts: list[ResourceSlice], part: ResourceSlice) -> None:
    """Add a slice; a newer generation replaces older slices."""
    if parts and part.generation < parts[0].generation:
        return
    if parts and part.generation > parts[0].generation:
        parts.clear()
    parts.append(part)


def _pool(
    parts: list[ResourceSlice], slices: Sequence[ResourceSlice], version: SchedulerVersion
) -> ResourcePool | None:
    """The pool of the slices that the node sees; None if they are of an old generation.

    As upstream, slices for other nodes are read only if the node sees fewer slices than the first
    one states in ``resourceSliceCount``: otherwise a newer generation there goes unnoticed.
    """
    first = parts[0]
    if len(parts) == first.slice_count:
        return _checked(parts, [], version)
    if version.sees_own_slices_only:
        found = _checked(parts, [], version)
        return ResourcePool(found.driver, found.name, found.slices, (), {}, True, found.invalid)
    all_parts = [p for p in slices if (p.driver, p.pool) == (first.driver, first.pool)]
    if any(part.generation > first.generation for part in all_parts):
        return None
    current = [part for part in all_parts if part.generation == first.generation]
    if version.knows_compatibility_groups:
        current = [part for part in current if not _has_groups(part)]
    if len(current) != first.slice_count:
        return ResourcePool(first.driver, first.pool, incomplete=True)
    names = {part.name for part in parts}
    return _checked(parts, [part for part in current if part.name not in names], version)


def _checked(
    parts: list[ResourceSlice], others: list[ResourceSlice], version: SchedulerVersion
) -> ResourcePool:
    first = parts[0]
    if version.sorts:
        parts = sorted(parts, key=lambda part: part.name)
    if not version.partitionable or version.sees_own_slices_only:
        invalid = _duplicate_device(parts)
        return ResourcePool(first.driver, first.pool, tuple(parts), invalid=invalid)
    usable = [part for part in parts if not part.counter_sets]
    other_slices = others
    with_counters = [part for part in parts if part.counter_sets]
    if not version.counter_sets_seen_everywhere:
        other_slices = [part for part in others if not part.counter_sets]
        with_counters += [part for part in others if part.counter_sets]
    sets, duplicate = _counter_sets(with_counters)
    consumers = parts if version.counter_sets_seen_everywhere else usable
    invalid = (
        _duplicate_device(usable)
        or duplicate
        or _unknown_counter(sets, [*consumers, *other_slices])
    )
    if invalid:
        return ResourcePool(first.driver, first.pool, invalid=invalid)
    return ResourcePool(first.driver, first.pool, tuple(usable), tuple(other_slices), sets)


def _duplicate_device(parts: Sequence[ResourceSlice]) -> str:
    names: set[str] = set()
    for part in parts:
        for device in part.devices:
            if device.name in names:
                return f"duplicate device name {device.name}"
            names.add(device.name)
    return ""


def _counter_sets(parts: Sequence[ResourceSlice]) -> tuple[dict[str, CounterSet], str]:
    sets: dict[str, CounterSet] = {}
    for part in parts:
        for one in part.counter_sets:
            if one.name in sets:
                return sets, f"duplicate counter set name {one.name}"
            sets[one.name] = one
    return sets, ""


def _unknown_counter(sets: dict[str, CounterSet], parts: Sequence[ResourceSlice]) -> str:
    for use in (use for part in parts for device in part.devices for use in device.consumes):
        if use.counter_set not in sets:
            return f"counter set {use.counter_set} not found"
        for name in use.counters:
            if name not in sets[use.counter_set].counters:
                return f"counter {name} not found in counter set {use.counter_set}"
    return ""
