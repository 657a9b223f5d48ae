"""The pending pods of one scheduling domain, in kube-scheduler's terms.

A pending pod is active (to be tried now), unschedulable (it fitted nowhere) or paused (its search
is not finished).
"""

import heapq
from dataclasses import dataclass, field
from typing import Final

from dray.reasons import Reason
from dray.runtime.token_bucket import TokenBucket

QueueKey = tuple[int, float, str]
"""Order of the pods: negative priority, time of creation, uid."""
NO_HINT = b""
"""Signature of unschedulable pods that are tried again after every change: it is not known which
change helps them."""


_REPORTS: Final = 6
"""How many changes of a signature's reasons are recorded at once; then one per period. Without this
limit, each time that a node came or went, every waiting pod would be recorded again."""
_MOST_SIGNATURES: Final = 1024


@dataclass(slots=True)
class SchedulingQueue:
    """Pods that a decision could help, and when each is tried."""

    pending: dict[str, QueueKey] = field(default_factory=dict)
    """Per pod uid."""
    capacity_version: int = 0
    """Increases when pods that did not fit before may fit, and when nodes are lost."""
    node_lost_unix_s: float = -1.0
    """When a node was last deleted or stopped being ready; below 0: never."""
    topology: str = ""
    """The pool's topology setting."""
    paused: dict[str, None] = field(default_factory=dict)
    """Pods whose search is not finished."""
    resumed: dict[str, None] = field(default_factory=dict)
    """Pods whose search goes on."""
    stale_reasons: dict[bytes, None] = field(default_factory=dict)
    """Signatures of unschedulable pods whose reasons may have changed."""
    deferred_reasons: dict[str, None] = field(default_factory=dict)
    """Pods whose reasons changed too soon to be recorded again."""
    explained: dict[tuple[object, ...], tuple[tuple[int, ...], tuple[Reason, ...]]] = field(
        default_factory=dict
    )
    """Reasons, and the versions of what they were computed from, per signature. While devices or
    nodes are held, also per namespace, group and priority."""
    allowances: dict[bytes, TokenBucket] = field(default_factory=dict)
    """Per signature."""
    active: list[QueueKey] = field(default_factory=list)
    """Heap; an entry counts only while it equals the pod's in ``pending``."""
    _last_scan: int = -1
    """The ``capacity_version`` of the last scan; below 0: the next scan activates all pods."""
    unschedulable_pods: dict[bytes, list[QueueKey]] = field(default_factory=dict)
    """Heaps per signature: pods of equal signature fit the same nodes."""
    _unschedulable_as: dict[str, tuple[bytes, QueueKey]] = field(default_factory=dict)
    """Per pod uid, the entry of ``unschedulable_pods`` that counts."""
    _removed: dict[bytes, int] = field(default_factory=dict)
    """Per signature, about how many entries of its heap are of pods that were removed."""

    @property
    def first_active(self) -> QueueKey | None:
        """The place of the first active entry; its pod may be gone."""
        return self.active[0] if self.active else None

    @property
    def activates_all(self) -> bool:
        """Whether the next scan activates every pending pod."""
        return self._last_scan < 0

    @property
    def must_scan(self) -> bool:
        """Whether capacity changed since the last scan."""
        return self._last_scan != self.capacity_version

    def active_pods(self) -> set[str]:
        """Uids of the pods that are to be tried, and of those whose search is not finished."""
        return {key[2] for key in self.active if self.pending.get(key[2]) == key} | {*self.paused}

    def add(self, pod_uid: str, key: QueueKey, *, activate: bool) -> None:
        """Add a pending pod, or change its place."""
        self.pending[pod_uid] = key
        if activate:
            heapq.heappush(self.active, key)

    def remove(self, pod_uid: str) -> None:
        """Remove a pod that is decided, gone or not decidable."""
        if self.pending.pop(pod_uid, None) is not None:
            self.deferred_reasons.pop(pod_uid, None)
            if (entry := self._unschedulable_as.pop(pod_uid, None)) is not None:
                self._forget_removed(entry[0])

    def _forget_removed(self, signature: bytes) -> None:
        """Note that a pod of a signature was removed. If there are many entries of removed pods,
        forget them: they would stay as long as the first pod fits nowhere."""
        heap = self.unschedulable_pods.get(signature, [])
        removed = self._removed.get(signature, 0) + 1
        if removed <= len(heap) // 2:
            self._removed[signature] = removed
            return
        self._removed.pop(signature, None)
        # In place; a sorted list is a heap.
        heap[:] = sorted(
            {key for key in heap if self._unschedulable_as.get(key[2]) == (signature, key)}
        )

    def activate(self, pod_uid: str) -> None:
        """Try a pod soon, if it is pending."""
        key = self.pending.get(pod_uid)
        if key is not None:
            heapq.heappush(self.active, key)

    def pop(self) -> str:
        """The uid of the next active pod; empty for an entry that no longer counts."""
        key = heapq.heappop(self.active)
        if self.active and self.active[0] == key:
            return ""  # Activated more than once: by the pod's fact and by each claim's.
        uid = key[2]
        return uid if self.pending.get(uid) == key and uid not in self.paused else ""

    def add_unschedulable(self, pod_uid: str, signature: bytes) -> None:
        """Keep a pending pod that fits nowhere until it is activated."""
        entry = (signature, self.pending[pod_uid])
        if self._unschedulable_as.get(pod_uid) != entry:
            self._unschedulable_as[pod_uid] = entry
            heapq.heappush(self.unschedulable_pods.setdefault(signature, []), entry[1])

    def unschedulable_signatures(self) -> tuple[bytes, ...]:
        """Signatures of the unschedulable pods."""
        return tuple(self.unschedulable_pods)

    def unschedulable(self, signature: bytes) -> list[str]:
        """Uids of the pods under a signature, in their order."""
        keys = sorted(
            key
            for key in self.unschedulable_pods.get(signature, ())
            if self._unschedulable_as.get(key[2]) == (signature, key)
            and self.pending.get(key[2]) == key
        )
        return list(dict.fromkeys(key[2] for key in keys))

    def first_unschedulable(self, signature: bytes) -> str | None:
        """The uid of the first unschedulable pod under a signature."""
        key = self._first_unschedulable(signature)
        return None if key is None else key[2]

    def _first_unschedulable(self, signature: bytes) -> QueueKey | None:
        heap = self.unschedulable_pods.get(signature, [])
        while heap:
            key = heap[0]
            if self._unschedulable_as.get(key[2]) == (signature, key):
                if self.pending.get(key[2]) == key:
                    return key
                del self._unschedulable_as[key[2]]
            heapq.heappop(heap)
        self.unschedulable_pods.pop(signature, None)
        self._removed.pop(signature, None)
        self.stale_reasons.pop(signature, None)
        return None

    def activate_next(self, signature: bytes) -> None:
        """Activate the first unschedulable pod under a signature, if there is one."""
        key = self._first_unschedulable(signature)
        if key is not None:
            heapq.heappop(self.unschedulable_pods[signature])
            del self._unschedulable_as[key[2]]
            heapq.heappush(self.active, key)

    def resume_paused(self) -> None:
        """Activate the pods whose search is not finished."""
        self.resumed, self.paused = self.paused, {}
        for uid in self.resumed:
            self.activate(uid)

    def request_full_scan(self) -> None:
        """Let the next scan activate every pending pod."""
        self._last_scan = -1

    def end_scan(self) -> None:
        """Remember that the pods were scanned for the present capacity."""
        self._last_scan = self.capacity_version

    def move_all_to_active(self) -> None:
        """Activate every pending pod."""
        self.paused.clear()
        self.unschedulable_pods.clear()
        self._unschedulable_as.clear()
        self._removed.clear()
        self.stale_reasons.clear()
        self.active = list(self.pending.values())
        heapq.heapify(self.active)

    def take_report(self, signature: bytes, now_unix_s: float, *, every_s: float) -> bool:
        """Whether changed reasons of a signature may be recorded now."""
        if len(self.allowances) >= _MOST_SIGNATURES:
            self.allowances.clear()
        if signature not in self.allowances:
            bucket = TokenBucket(_REPORTS, 1 / max(every_s, 0.001), now_s=now_unix_s)
            self.allowances[signature] = bucket
        return self.allowances[signature].take(now_unix_s)

    def clear_active(self) -> None:
        """Try nothing: this replica no longer serves the domain."""
        self.active.clear()
        self.paused.clear()

    def snapshot(self) -> list[object]:
        """Everything that decides when each pod is tried, for comparisons of states."""
        active = {key for key in self.active if self.pending.get(key[2]) == key}
        unschedulable = [
            uid for uid, (_, key) in self._unschedulable_as.items() if self.pending.get(uid) == key
        ]
        return [
            [self.pending, sorted(active), self.activates_all, self.must_scan],
            sorted(unschedulable),
            sorted(signature.hex() for signature in self.stale_reasons),
            sorted(self.deferred_reasons),
        ]
