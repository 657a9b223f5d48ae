"""Which PodGroups name which Queue and PriorityClass, and the counts of a Queue's groups. Pure."""

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from dray.api.groups import VOLCANO, PodGroup
from dray.api.pods import GroupKey
from dray.kube.ports import PRIORITY_CLASSES, QUEUES
from dray_claim_controller.cache.changes import Unread, enter, leave

Named = tuple[str, str]
"""Plural and name of an object."""
_NO_GROUPS: Final[dict[GroupKey, None]] = {}


class GroupReferences:
    """Groups by the objects that they name."""

    def __init__(self) -> None:
        self._named: dict[GroupKey, tuple[Named, ...]] = {}
        self._naming: dict[Named, dict[GroupKey, None]] = {}

    def put(self, key: GroupKey, group: PodGroup | None) -> None:
        """A group is there, or changed; None: it is gone, or can't be read."""
        for named in self._named.pop(key, ()):
            leave(self._naming, named, key)
        if group is None:
            return
        self._named[key] = (
            (QUEUES.plural, group.queue),
            (PRIORITY_CLASSES.plural, group.priority_class),
        )
        for named in self._named[key]:
            enter(self._naming, named, key)

    def naming(self, plural: str, name: str) -> Collection[GroupKey]:
        """The groups that name an object."""
        return self._naming.get((plural, name), _NO_GROUPS).keys()


class QueueShare(msgspec.Struct, frozen=True, gc=False):
    """What a Volcano PodGroup adds to the counts of its Queue."""

    queue: str
    phase: str
    running: int
    """Bound pods that have not ended."""


class QueueCounts:
    """Groups and bound pods per Queue. Only groups that changed are counted again."""

    def __init__(self, unread: Unread[GroupKey]) -> None:
        """``unread``: groups that came, changed or went, or whose pods did."""
        self._unread = unread
        self._shares: dict[GroupKey, QueueShare] = {}
        self.phases: dict[str, dict[str, int]] = {}
        """By Queue, the number of its groups in each phase."""
        self.running: dict[str, int] = {}

    def refresh(self, share_of: Callable[[GroupKey], QueueShare | None]) -> None:
        """Take what changed into account."""
        for key in self._unread.take():
            if key.api != VOLCANO:
                continue
            before, now = self._shares.pop(key, None), share_of(key)
            if now is not None:
                self._shares[key] = now
            if before != now:
                self._add(before, -1)
                self._add(now, 1)

    def _add(self, share: QueueShare | None, sign: int) -> None:
        if share is None:
            return
        phases = self.phases.setdefault(share.queue, {})
        phases[share.phase] = phases.get(share.phase, 0) + sign
        if not phases[share.phase]:
            del phases[share.phase]
        self.running[share.queue] = self.running.get(share.queue, 0) + sign * share.running
        if not phases:
            del self.phases[share.queue], self.running[share.queue]
