"""kube-scheduler's active, backoff and unschedulable queues. Pure."""

from dataclasses import dataclass

from dray.api.pods import Pod

_FIRST_BACKOFF_S = 1.0
_LAST_BACKOFF_S = 10.0
FLUSH_S = 300.0
"""An unschedulable pod is retried after this time, even if nothing changed."""


@dataclass(slots=True)
class _Entry:
    attempts: int = 0
    attempted_at_s: float = 0.0
    active: bool = True
    """Whether a change since the last attempt may make the pod schedulable."""


class Queue:
    """Unscheduled pods, by uid. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def activate(self, uid: str) -> None:
        """Retry the pod after its backoff."""
        self._entries.setdefault(uid, _Entry()).active = True

    def activate_all(self) -> None:
        """Retry all pods after their backoff."""
        for entry in self._entries.values():
            entry.active = True

    def record_attempt(self, uid: str, now_s: float) -> None:
        """Record that the pod was unschedulable."""
        entry = self._entries.setdefault(uid, _Entry())
        entry.attempts += 1
        entry.attempted_at_s = now_s
        entry.active = False

    def record_gated(self, uid: str, now_s: float) -> None:
        """Record that PreEnqueue refused the pod: it gets no backoff."""
        entry = self._entries.setdefault(uid, _Entry())
        entry.attempted_at_s = now_s
        entry.active = False

    def remove(self, uid: str) -> None:
        """Remove a pod that was bound, is being bound, or was deleted."""
        self._entries.pop(uid, None)

    def due(self, pods: dict[str, Pod], now_s: float) -> list[Pod]:
        """The pods to schedule now: higher priority first, then older. Removes deleted pods, which
        would stay due."""
        for uid in [uid for uid in self._entries if uid not in pods]:
            del self._entries[uid]
        due = [pods[uid] for uid in self._entries if self._due_at(uid) <= now_s]
        return sorted(due, key=lambda pod: (-pod.priority, pod.created_unix_s, pod.uid))

    def next_due_s(self, now_s: float) -> float | None:
        """Seconds until a pod is due; None if the queue is empty."""
        times = [self._due_at(uid) for uid in self._entries]
        return max(0.0, min(times) - now_s) if times else None

    def _due_at(self, uid: str) -> float:
        entry = self._entries[uid]
        if not entry.active:
            return entry.attempted_at_s + FLUSH_S
        if entry.attempts == 0:
            return 0.0
        pause_s: float = min(_FIRST_BACKOFF_S * 2 ** (entry.attempts - 1), _LAST_BACKOFF_S)
        return entry.attempted_at_s + pause_s
