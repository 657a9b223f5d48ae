"""Which device stands for a group of equal ones: that of the first node, of its own the first.

Nodes and devices come in the order of their ties, which is not that of their names. Only nodes
that are named in a reason are looked at again.
"""

from dray.reasons import Nearest
from dray_allocator.devices.device_equivalence import DeviceEquivalence
from dray_allocator.devices.versions import SchedulerVersion
from dray_allocator.devices.visible_devices import visible_devices
from dray_allocator.devices.visible_pools import GroupKey, devices_with_keys, pools_of
from dray_allocator.explain.failure_counts import FailureCounts
from dray_allocator.nodes.load import tie
from dray_allocator.placement.node_equivalence_cache import node_of
from dray_allocator.state.state import AllocatorState

_TieAndName = tuple[int, str]
"""Tie and name of a device."""


class RepresentativeDevices:
    """The nodes of groups, and the names of devices on those that were asked for."""

    def __init__(
        self, state: AllocatorState, rules: SchedulerVersion, classes: DeviceEquivalence
    ) -> None:
        self._state = state
        self._rules = rules
        self._classes = classes
        self._nodes: dict[GroupKey, str] = {}
        self._on: dict[str, dict[GroupKey, _TieAndName]] = {}

    def first(self, key: GroupKey, node: str) -> None:
        """A group is found on a node; nodes come in the order of their ties."""
        self._nodes.setdefault(key, node)

    def nearest(self, tally: FailureCounts) -> tuple[Nearest | None, str]:
        """The nearest miss, and its detail. The tally's groups are in the order
        of their nodes."""
        if not tally.near:
            return None, ""
        node = self._nodes[tally.near[0][0].key]
        devices = self._devices(node)
        (_, name), miss = min(
            (
                (devices[group.key], miss)
                for group, miss in tally.near
                if self._nodes[group.key] == node
            ),
            key=lambda found: found[0],
        )
        return Nearest(name, miss.seen), miss.detail

    def _devices(self, node: str) -> dict[GroupKey, _TieAndName]:
        """The first device of each group there."""
        known = self._on.get(node)
        if known is None:
            known = self._on[node] = {}
            visible = visible_devices(self._state.published, self._state.device_usage, node)
            pools = pools_of(node_of(self._state, node), visible, self._rules)
            for key, one in devices_with_keys(pools, visible, self._rules, self._classes):
                named = tie(str(one.id)), f"{one.id.pool}/{one.id.device}"
                known[key] = min(named, known.get(key, named))
        return known
