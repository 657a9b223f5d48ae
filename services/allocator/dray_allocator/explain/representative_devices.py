"""The device that a reason names for a group of equal ones: the first one on the first node.

Nodes and devices are in the order of their tie breaks. Only nodes that a reason names are read
again.
"""

from dray.reasons import Nearest
from dray_allocator.devices.device_equivalence import DeviceEquivalence
from dray_allocator.devices.versions import SchedulerVersion
from dray_allocator.devices.visible_devices import visible_devices
from dray_allocator.devices.visible_pools import GroupKey, devices_with_keys, pools_of
from dray_allocator.explain.failure_counts import FailureCounts
from dray_allocator.nodes.tie_break import tie
from dray_allocator.placement.node_equivalence_cache import node_of
from dray_allocator.state.state import AllocatorState

_TieAndName = tuple[int, str]
"""Tie break and name of a device."""


class RepresentativeDevices:
    """The first node of each group, and the devices on the nodes that were read again."""

    def __init__(
        self, state: AllocatorState, version: SchedulerVersion, classes: DeviceEquivalence
    ) -> None:
        self._state = state
        self._version = version
        self._classes = classes
        self._nodes: dict[GroupKey, str] = {}
        self._on: dict[str, dict[GroupKey, _TieAndName]] = {}

    def first(self, key: GroupKey, node: str) -> None:
        """Note that a node has a group; called in the order of the nodes' tie breaks."""
        self._nodes.setdefault(key, node)

    def nearest(self, counts: FailureCounts) -> tuple[Nearest | None, str]:
        """The nearest device and the detail of its shortfall. The groups are in the order of their
        nodes."""
        if not counts.near:
            return None, ""
        node = self._nodes[counts.near[0][0].key]
        devices = self._devices(node)
        (_, name), shortfall = min(
            (
                (devices[group.key], shortfall)
                for group, shortfall in counts.near
                if self._nodes[group.key] == node
            ),
            key=lambda found: found[0],
        )
        return Nearest(name, shortfall.seen), shortfall.detail

    def _devices(self, node: str) -> dict[GroupKey, _TieAndName]:
        """The first device of each group on the node."""
        known = self._on.get(node)
        if known is None:
            known = self._on[node] = {}
            visible = visible_devices(self._state.published, self._state.device_usage, node)
            pools = pools_of(node_of(self._state, node), visible, self._version)
            for key, one in devices_with_keys(pools, visible, self._version, self._classes):
                named = tie(str(one.id)), f"{one.id.pool}/{one.id.device}"
                known[key] = min(named, known.get(key, named))
        return known
