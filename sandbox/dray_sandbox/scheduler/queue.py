"""Which pods to try next: kube-scheduler's active, backoff and unschedulable queues. Pure."""

from dataclasses import dataclass

from dray.api.pods import Pod

FIRST_BACKOFF_S = 1.0
LAST_BACKOFF_S = 10.0
FLUSH_S = 300.0
"""After this long, an unschedulable pod is tried again although nothing changed."""


@dataclass(slots=True)
class _Entry:
    attempts: int = 0
    tried_at_s: float = 0.0
    active: bool = True
    """Whether something changed since the last try that might help it."""


class Queue:
    """Pods waiting for a node, by uid. Times are of any one monotonic clock."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def activate(self, uid: str) -> None:
        """Try the pod as soon as its backoff is over."""
        self._entries.setdefault(uid, _Entry()).active = True

    def activate_all(self) -> None:
        """Something changed that may help any pod."""
        for entry in self._entries.values():
            entry.active = True

    def tried(self, uid: str, now_s: float) -> None:
        """The pod was tried and is still waiting."""
        entry = self._entries.setdefault(uid, _Entry())
        entry.attempts += 1
        entry.tried_at_s = now_s
        entry.active = False

    def parked(self, uid: str, now_s: float) -> None:
        """The pod was not even tried (PreEnqueue): no backoff once something changes."""
        entry = self._entries.setdefault(uid, _Entry())
        entry.tried_at_s = now_s
        entry.active = False

    def remove(self, uid: str) -> None:
        """The pod was bound, is being bound, or is gone."""
        self._entries.pop(uid, None)

    def due(self, pods: dict[str, Pod], now_s: float) -> list[Pod]:
        """The pods to try now: higher priority first, then older. Pods that went while they were
        being tried are forgotten: they would be due for ever."""
        for uid in [uid for uid in self._entries if uid not in pods]:
            del self._entries[uid]
        due = [pods[uid] for uid in self._entries if self._due_at(uid) <= now_s]
        return sorted(due, key=lambda pod: (-pod.priority, pod.created_unix_s, pod.uid))

    def next_due_s(self, now_s: float) -> float | None:
        """Seconds until a pod is due; None while none waits."""
        times = [self._due_at(uid) for uid in self._entries]
        return max(0.0, min(times) - now_s) if times else None

    def _due_at(self, uid: str) -> float:
        entry = self._entries[uid]
        if not entry.active:
            return entry.tried_at_s + FLUSH_S
        if entry.attempts == 0:
            return 0.0
        pause_s: float = min(FIRST_BACKOFF_S * 2 ** (entry.attempts - 1), LAST_BACKOFF_S)
        return entry.tried_at_s + pause_s
