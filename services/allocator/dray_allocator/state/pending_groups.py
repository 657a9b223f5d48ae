"""The PodGroups of one scheduling domain whose pods are decided together."""

import heapq
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from dray.api.pods import GroupKey
from dray.messages.decisions import HeldClaim, NodeHold, Waiting
from dray_allocator.nodes.slots import SlotCounter
from dray_allocator.state.scheduling_queue import QueueKey

T = TypeVar("T")
_NOTHING_NEEDED: Final = 0
_SHORTEST_BACKOFF_S: Final = 1.0
_LONGEST_BACKOFF_S: Final = 30.0
_LOOK_EVERY_S: Final = 10.0
_HELD_SHARE: Final = 4
_LONGEST_PAUSE_S: Final = 86_400.0
_MOST_TURNS: Final = 1024
_LOOKED_THROUGH: Final = 4096
"""The maximum number of groups and signatures that one look goes through, in about 15 ms."""


class Hint(msgspec.Struct, frozen=True, gc=False):
    """What a group that does not fit waits for."""

    signature: bytes = b""
    """The signature of the pods that find no node; empty: any change may help."""
    slots: int = _NOTHING_NEEDED
    """How many such pods the pool must have room for."""
    resource: str = ""
    """A resource that the group asks for (``minResources``) and that is short; empty: none."""
    resource_nano: int = 0
    """How much of it must be free, in billionths."""
    refused_at: int = -1
    """The ``requirements_version`` with which pods that the group needs are refused; below 0: none
    is refused."""


NO_HINT: Final = Hint()


class RunningMember(msgspec.Struct, frozen=True, gc=False):
    """A pod that runs: since when it was seen, and its claims."""

    since_unix_s: float
    claims: tuple[HeldClaim, ...]


@dataclass(slots=True)
class LongWaits:
    """Since when pods and groups wait, and for which of them this replica looks for nodes to
    hold."""

    since: dict[str, float] = field(default_factory=dict)
    """The time by UID of each pending pod and group that fits nowhere. It is kept while the pod or
    group is tried again."""
    turns: dict[str, None] = field(default_factory=dict)
    """Namespaces for which nodes were looked for, in the order of their last turns."""
    without_nodes: dict[str, None] = field(default_factory=dict)
    """UIDs of pods and groups for which no nodes were found; cleared once this is true for all."""
    pauses: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By UID of a pod or group that did not start while nodes were held for it: the length and the
    end of its pause. Each pause is longer than the last: the pod may never fit."""
    looks_again_unix_s: float = 0.0
    rests_until_unix_s: float = 0.0
    _position: int = 0

    def is_due(self, now_unix_s: float) -> bool:
        """Whether it is time for a look; if so, the next look is scheduled."""
        if now_unix_s < self.looks_again_unix_s:
            return False
        self.looks_again_unix_s = now_unix_s + _LOOK_EVERY_S
        return True

    def some(self, waiting: Sequence[T]) -> Sequence[T]:
        """The groups and signatures that this look goes through: all, or those that follow the ones
        of the previous look."""
        if len(waiting) <= _LOOKED_THROUGH:
            return waiting
        begin = self._position if self._position < len(waiting) else 0
        self._position = begin + _LOOKED_THROUGH
        return waiting[begin : self._position]

    def note(self, uid: str, recorded: Iterable[Waiting | None], now_unix_s: float) -> None:
        """Note since when a pod or group fits nowhere, unless that is known: since the earliest of
        its pods' last records, or since now. It may have waited before."""
        if uid not in self.since:
            times = (one.now_unix_s for one in recorded if one is not None)
            self.since[uid] = min(times, default=now_unix_s)

    def forget_others(self, pods: Container[str], groups: Iterable[str], count: int) -> None:
        """Forget pods and groups that do not wait any more, once there are many. ``count``: how
        many wait."""
        if len(self.since) > 2 * count + _MOST_TURNS:
            known = frozenset(groups)
            self.since = {
                uid: since for uid, since in self.since.items() if uid in pods or uid in known
            }
        self.pauses = {uid: pause for uid, pause in self.pauses.items() if uid in self.since}

    def is_paused(self, uid: str, now_unix_s: float) -> bool:
        """Whether nodes were held in vain for a pod or group not long ago."""
        _, end_unix_s = self.pauses.get(uid, (0.0, 0.0))
        return now_unix_s < end_unix_s

    def first(self, uids: Sequence[str], most: int) -> Sequence[str]:
        """Those of the pods and groups that have waited long for which nodes are looked for now."""
        waiting = dict.fromkeys(uids)
        self.without_nodes = {uid: None for uid in self.without_nodes if uid in waiting}
        if len(self.without_nodes) == len(waiting):
            self.without_nodes.clear()
        return [uid for uid in uids if uid not in self.without_nodes][:most]

    def take_turn(self, namespace: str) -> None:
        """Note that a pod or group of a namespace had its turn: nodes were looked for."""
        self.turns.pop(namespace, None)
        if len(self.turns) >= _MOST_TURNS:
            del self.turns[next(iter(self.turns))]
        self.turns[namespace] = None

    def rest(self, hold: NodeHold, nodes: int, now_unix_s: float) -> None:
        """Hold nothing for a while after a hold, so that on average at most one in ``_HELD_SHARE``
        of the pool's nodes is held. If the hold ended because its time was over, its pod or group
        also pauses. ``nodes``: how many nodes the pool has."""
        lasted_s = max(0.0, min(now_unix_s, hold.until_unix_s) - hold.since_unix_s)
        excess = _HELD_SHARE * len(hold.nodes) / max(1, nodes) - 1
        self.rests_until_unix_s = now_unix_s + lasted_s * max(0.0, excess)
        if now_unix_s >= hold.until_unix_s:
            before_s, _ = self.pauses.get(hold.uid, (lasted_s / 2, 0.0))
            pause_s = min(2 * before_s, _LONGEST_PAUSE_S)
            self.pauses[hold.uid] = pause_s, now_unix_s + pause_s


@dataclass(slots=True)
class PendingGroups:
    """Groups that a decision could help, and when each is tried.

    A touched group is looked at again: it is then pending, or its pods are decided one by one.
    """

    touched: dict[GroupKey, None] = field(default_factory=dict)
    postponed: dict[GroupKey, None] = field(default_factory=dict)
    """Touched groups that are looked at with the next tick."""
    starting: dict[GroupKey, None] = field(default_factory=dict)
    """Groups that, when they were looked at last, were below their minimum and had pods with
    devices that did not run yet."""
    incomplete: dict[GroupKey, None] = field(default_factory=dict)
    """Groups that lack pods for their minimum: no capacity helps them, only a touch does."""
    pending: dict[GroupKey, QueueKey] = field(default_factory=dict)
    """Groups below their minimum, with enough pods for it."""
    unschedulable: dict[GroupKey, Hint] = field(default_factory=dict)
    """Pending groups that do not fit."""
    scanned: int = -1
    """The domain's ``capacity_version`` when unschedulable groups were looked at last."""
    counters: dict[bytes, SlotCounter] = field(default_factory=dict)
    """Slots of the pool's nodes, by signature of pods; a cache."""
    backoffs: dict[GroupKey, tuple[float, float]] = field(default_factory=dict)
    """The backoff, and its end, of each group for which a long joint search found nothing.
    Without it, a group that is searched again and again would delay other pods."""
    running: dict[GroupKey, Mapping[str, RunningMember]] = field(default_factory=dict)
    """For each group whose minimum is met, or for which devices are held: its running pods, by UID.
    Once a pod is lost, the facts may no longer show its claims."""
    long_waits: LongWaits = field(default_factory=LongWaits)
    active: list[tuple[QueueKey, GroupKey]] = field(default_factory=list)
    """Heap; an entry counts only while it equals the group's in ``pending``."""

    def touch(self, key: GroupKey) -> None:
        """Have a group looked at again."""
        self.touched[key] = None

    def add(self, key: GroupKey, order: QueueKey) -> None:
        """Add a pending group, and try it soon, or after its backoff."""
        self.pending[key] = order
        if key in self.backoffs:
            self.unschedulable.setdefault(key, NO_HINT)
        else:
            self.unschedulable.pop(key, None)
            heapq.heappush(self.active, (order, key))

    def remove(self, key: GroupKey) -> None:
        """Remove a group that is decided, or whose pods are decided one by one."""
        self.pending.pop(key, None)
        self.unschedulable.pop(key, None)
        if not self.pending:
            self.active.clear()  # Else entries that no longer count cause work for ever.

    def forget(self, key: GroupKey) -> None:
        """Forget a group without pods in the pool."""
        self.remove(key)
        self.starting.pop(key, None)
        self.incomplete.pop(key, None)

    def back_off(self, key: GroupKey, now_unix_s: float) -> None:
        """Do not try an unschedulable group for a while, longer each time."""
        before_s, _ = self.backoffs.get(key, (0.0, 0.0))
        backoff_s = min(_LONGEST_BACKOFF_S, max(_SHORTEST_BACKOFF_S, 2 * before_s))
        self.backoffs[key] = backoff_s, now_unix_s + backoff_s

    def end_backoffs(self, now_unix_s: float) -> None:
        """Try the groups again whose backoff is over."""
        for key, (_, until_unix_s) in tuple(self.backoffs.items()):
            if until_unix_s <= now_unix_s and key in self.unschedulable:
                self._activate(key)
            elif until_unix_s + _LONGEST_BACKOFF_S <= now_unix_s and key not in self.pending:
                del self.backoffs[key]

    def activate(self, key: GroupKey) -> None:
        """Try a pending group soon, or after its backoff."""
        if key not in self.backoffs:
            self._activate(key)

    def _activate(self, key: GroupKey) -> None:
        if (order := self.pending.get(key)) is not None:
            self.unschedulable.pop(key, None)
            heapq.heappush(self.active, (order, key))

    def add_unschedulable(self, key: GroupKey, hint: Hint) -> None:
        """Keep a pending group that does not fit until it is activated."""
        self.unschedulable[key] = hint

    def touch_all(self) -> None:
        """Have all groups looked at again; what was known about running ones is outdated."""
        self.active.clear()
        self.backoffs.clear()
        self.touched |= dict.fromkeys((*self.pending, *self.incomplete, *self.running))
        self.running.clear()
        self.long_waits.since.clear()

    def first(self) -> QueueKey | None:
        """The place of the first active group."""
        while self.active:
            order, key = self.active[0]
            if self.pending.get(key) == order and key not in self.unschedulable:
                return order
            heapq.heappop(self.active)
        return None

    def active_groups(self) -> set[GroupKey]:
        """The groups that are to be tried."""
        return {key for order, key in self.active if self.pending.get(key) == order}.difference(
            self.unschedulable
        )

    def pop(self) -> GroupKey:
        """The first active group, see ``first``."""
        return heapq.heappop(self.active)[1]

    def snapshot(self, capacity_version: int) -> list[object]:
        """Everything that decides when each group is tried, for comparisons of states."""
        active = [order for order, key in self.active if self.pending.get(key) == order]
        return [
            [[str(key) for key in keys] for keys in (self.touched, self.postponed)],
            [[str(key) for key in keys] for keys in (self.starting, self.incomplete)],
            [(str(key), order) for key, order in self.pending.items()],
            [(str(key), hint.signature.hex()) for key, hint in self.unschedulable.items()],
            [self.scanned == capacity_version, sorted(active)],
            [(str(key), backoff) for key, backoff in self.backoffs.items()],
            [(str(key), running) for key, running in self.running.items()],
            [list(self.long_waits.turns), list(self.long_waits.without_nodes)],
        ]
