"""Count the devices and pools that nodes see, to explain why claims do not fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dray.api.pods import Node
from dray_allocator.devices.candidates import Candidate, candidates_of
from dray_allocator.devices.counters import Amounts, counters_left
from dray_allocator.devices.device_equivalence import DeviceEquivalence
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.pools import ResourcePool, gather
from dray_allocator.devices.versions import SchedulerVersion
from dray_allocator.devices.visible_devices import Use, VisibleDevices

CountersLeft = tuple[tuple[tuple[str, str], int], ...]
"""By counter set and counter, how much is left, in billionths."""
GroupKey = tuple[int, Use, CountersLeft]
"""The equivalence class of a device, its use, and how much is left of its counters."""


@dataclass(slots=True)
class Group:
    """Equal devices, and an example."""

    key: GroupKey
    one: Candidate
    count: int = 0

    @property
    def use(self) -> Use:
        """The use of each of the devices."""
        return self.key[1]


@dataclass(slots=True)
class VisiblePools:
    """The devices and pools that one node sees."""

    own: dict[GroupKey, Group] = field(default_factory=dict)
    shared: dict[str, dict[GroupKey, Group]] = field(default_factory=dict)
    """By slice, the devices that other nodes may also see."""
    own_pools: int = 0
    unusable_pools: int = 0
    """How many of them are incomplete or invalid."""
    shared_pools: dict[str, bool] = field(default_factory=dict)
    """Pools that other nodes may also see, and whether they are incomplete or invalid."""

    @property
    def devices(self) -> int:
        """How many devices the node sees."""
        groups = (*self.own.values(), *(one for of in self.shared.values() for one in of.values()))
        return sum(group.count for group in groups)


def count_pools(
    node: Node, visible: VisibleDevices, version: SchedulerVersion, devices: DeviceEquivalence
) -> VisiblePools:
    """Count the devices and pools that ``node`` sees."""
    pools = pools_of(node, visible, version)
    counted = VisiblePools()
    multi_node = {(part.driver, part.pool) for part in visible.slices if not part.node}
    for pool in pools:
        if (pool.driver, pool.name) in multi_node:
            counted.shared_pools[str(pool)] = is_unusable(pool)
        else:
            counted.own_pools += 1
            counted.unusable_pools += is_unusable(pool)
    for key, one in devices_with_keys(pools, visible, version, devices):
        is_own = bool(one.part.node)
        groups = counted.own if is_own else counted.shared.setdefault(one.part.name, {})
        groups.setdefault(key, Group(key, one)).count += 1
    return counted


def pools_of(node: Node, visible: VisibleDevices, version: SchedulerVersion) -> list[ResourcePool]:
    """All pools that a node sees; none after an error, which the result of the node reports."""
    try:
        return list(gather(visible.slices, node, version))
    except AllocationError:
        return []


def is_unusable(pool: ResourcePool) -> bool:
    """Whether a pool is incomplete or invalid."""
    return bool(pool.invalid or pool.incomplete)


def devices_with_keys(
    pools: Sequence[ResourcePool],
    visible: VisibleDevices,
    version: SchedulerVersion,
    devices: DeviceEquivalence,
) -> Iterator[tuple[GroupKey, Candidate]]:
    """The devices of the usable pools, each with the key of its group."""
    uses = {
        part.name: dict(zip((device.name for device in part.devices), of, strict=True))
        for part, of in zip(visible.slices, visible.uses, strict=True)
    }
    usable = [pool for pool in pools if not is_unusable(pool)]
    left = _counters(usable, visible, version)
    for one in candidates_of(usable):
        use = uses[one.part.name][one.id.device]
        yield (devices.of(one.part, one.device), use, _counters_left(one, left)), one


def _counters(
    pools: Sequence[ResourcePool], visible: VisibleDevices, version: SchedulerVersion
) -> dict[tuple[str, str], Amounts]:
    """By driver and name of a pool, how much is left of its counters."""
    counting = [pool for pool in pools if pool.counter_sets]
    if not counting:
        return {}
    usage = visible.usage(version)
    return {(pool.driver, pool.name): counters_left(pool, usage.holds) for pool in counting}


def _counters_left(one: Candidate, left: dict[tuple[str, str], Amounts]) -> CountersLeft:
    if not one.device.consumes:
        return ()
    of_pool = left.get((one.pool.driver, one.pool.name), {})
    counters = ((use.counter_set, name) for use in one.device.consumes for name in use.counters)
    return tuple((counter, of_pool[counter]) for counter in counters if counter in of_pool)
