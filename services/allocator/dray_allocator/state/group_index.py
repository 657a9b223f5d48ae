"""PodGroups, and which pods are their members."""

from dray.api.groups import PodGroup
from dray.api.pods import GroupKey, Pod


class GroupIndex:
    """The latest fact of every group, and the members of each, also of unknown ones."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, PodGroup] = {}
        self._members: dict[GroupKey, dict[str, None]] = {}
        self._pools: dict[GroupKey, dict[str, int]] = {}
        """Per group, the pools of its members, and how many name each."""
        self._revisions: dict[GroupKey, int] = {}

    def __bool__(self) -> bool:
        return bool(self.groups or self._members)

    def put(self, group: PodGroup, revision: int, *, deleted: bool) -> bool:
        """Apply a group or its tombstone; False if it is old."""
        if revision < self._revisions.get(group.key, 0):
            return False
        self._revisions[group.key] = revision
        if deleted:
            self.groups.pop(group.key, None)
        else:
            self.groups[group.key] = group
        return True

    def join(self, pod: Pod) -> None:
        """Add a pod to the group that it names."""
        if pod.member is None:
            return
        key = pod.member.group
        self._members.setdefault(key, {})[pod.uid] = None
        pools = self._pools.setdefault(key, {})
        pools[pod.pool] = pools.get(pod.pool, 0) + 1

    def leave(self, pod: Pod) -> None:
        """Remove a pod from the group that it names."""
        if pod.member is None:
            return
        key = pod.member.group
        members, pools = self._members.get(key, {}), self._pools.get(key, {})
        if members.pop(pod.uid, pod) is pod:
            return
        pools[pod.pool] -= 1
        if not pools[pod.pool]:
            del pools[pod.pool]
        if not members:
            del self._members[key], self._pools[key]

    def members(self, key: GroupKey) -> tuple[str, ...]:
        """UIDs of a group's pods, in the order in which they joined."""
        return tuple(self._members.get(key, ()))

    def size(self, key: GroupKey) -> int:
        """The number of a group's pods."""
        return len(self._members.get(key, ()))

    def pools(self, key: GroupKey) -> tuple[str, ...]:
        """The pools of a group's pods."""
        return tuple(pool for pool in self._pools.get(key, ()) if pool)
