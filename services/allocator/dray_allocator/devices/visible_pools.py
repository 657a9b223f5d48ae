"""The devices and pools that the nodes of a class see, counted to explain what fails on them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dray.api.pods import Node
from dray_allocator.devices.candidates import Candidate, candidates_of
from dray_allocator.devices.counters import Amounts, left_of
from dray_allocator.devices.device_equivalence import DeviceEquivalence
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.pools import ResourcePool, gather
from dray_allocator.devices.versions import SchedulerVersion
from dray_allocator.devices.visible_devices import Use, VisibleDevices

CountersLeft = tuple[tuple[tuple[str, str], int], ...]
"""By counter set and counter, what is left of it, in billionths."""
GroupKey = tuple[int, Use, CountersLeft]
"""The class of a device, its use, and what is left of the counters that it consumes."""


@dataclass(slots=True)
class Group:
    """Equal devices, and one of them."""

    key: GroupKey
    one: Candidate
    count: int = 0

    @property
    def use(self) -> Use:
        """How they are used."""
        return self.key[1]


@dataclass(slots=True)
class VisiblePools:
    """What one node sees."""

    own: dict[GroupKey, Group] = field(default_factory=dict)
    shared: dict[str, dict[GroupKey, Group]] = field(default_factory=dict)
    """By slice, the devices that others may see, too."""
    own_pools: int = 0
    bad_pools: int = 0
    """Of them, those that can't be used."""
    shared_pools: dict[str, bool] = field(default_factory=dict)
    """Pools that others may see, too, and whether they can't be used."""


def count_pools(
    node: Node, visible: VisibleDevices, rules: SchedulerVersion, devices: DeviceEquivalence
) -> VisiblePools:
    """Count the devices and pools that ``node`` sees."""
    pools = pools_of(node, visible, rules)
    counted = VisiblePools()
    of_many = {(part.driver, part.pool) for part in visible.slices if not part.node}
    for pool in pools:
        if (pool.driver, pool.name) in of_many:
            counted.shared_pools[str(pool)] = is_bad(pool)
        else:
            counted.own_pools += 1
            counted.bad_pools += is_bad(pool)
    for key, one in keyed(pools, visible, rules, devices):
        is_own = bool(one.part.node)
        groups = counted.own if is_own else counted.shared.setdefault(one.part.name, {})
        groups.setdefault(key, Group(key, one)).count += 1
    return counted


def pools_of(node: Node, visible: VisibleDevices, rules: SchedulerVersion) -> list[ResourcePool]:
    """All pools that a node sees; none where that is unknown: the node's result shows it."""
    try:
        return list(gather(visible.slices, node, rules))
    except AllocationError:
        return []


def is_bad(pool: ResourcePool) -> bool:
    """Whether a pool can't be used."""
    return bool(pool.invalid or pool.incomplete)


def keyed(
    pools: Sequence[ResourcePool],
    visible: VisibleDevices,
    rules: SchedulerVersion,
    devices: DeviceEquivalence,
) -> Iterator[tuple[GroupKey, Candidate]]:
    """The devices of the pools that can be used, each with the key of its group."""
    uses = {
        part.name: dict(zip((device.name for device in part.devices), of, strict=True))
        for part, of in zip(visible.slices, visible.uses, strict=True)
    }
    usable = [pool for pool in pools if not is_bad(pool)]
    left = _counters(usable, visible, rules)
    for one in candidates_of(usable):
        use = uses[one.part.name][one.id.device]
        yield (devices.of(one.part, one.device), use, _counters_left(one, left)), one


def _counters(
    pools: Sequence[ResourcePool], visible: VisibleDevices, rules: SchedulerVersion
) -> dict[tuple[str, str], Amounts]:
    """By driver and name of a pool, what is left of its counters."""
    counting = [pool for pool in pools if pool.counter_sets]
    if not counting:
        return {}
    usage = visible.usage(rules)
    return {(pool.driver, pool.name): left_of(pool, usage.holds) for pool in counting}


def _counters_left(one: Candidate, left: dict[tuple[str, str], Amounts]) -> CountersLeft:
    if not one.device.consumes:
        return ()
    of_pool = left.get((one.pool.driver, one.pool.name), {})
    counters = ((use.counter_set, name) for use in one.device.consumes for name in use.counters)
    return tuple((counter, of_pool[counter]) for counter in counters if counter in of_pool)
