"""The scores of a replica's last decisions, for people. They are in its memory, not in the log."""

from collections import OrderedDict
from typing import Final

KEPT: Final = 2048
"""The maximum number of pods with kept scores. The oldest entry is dropped first."""
PER_TICK: Final = 64
"""The maximum number of decisions per tick with kept scores. It limits the cost of many pods at
once."""
MOST_BYTES: Final = 1024
"""The maximum size of the scores of one pod."""


class KeptScores:
    """Encoded ScoresReply messages by pod. No decision reads them."""

    def __init__(self) -> None:
        self._by_pod: OrderedDict[str, bytes] = OrderedDict()
        self._tick = -1
        self._left = PER_TICK

    def is_due(self, tick: int) -> bool:
        """Whether the scores of one more decision are kept in this tick; counts it."""
        if tick != self._tick:
            self._tick, self._left = tick, PER_TICK
        self._left -= 1
        return self._left >= 0

    def keep(self, pod_uid: str, reply: bytes) -> None:
        """Replace those of an earlier decision on the pod."""
        self._by_pod.pop(pod_uid, None)
        self._by_pod[pod_uid] = reply
        if len(self._by_pod) > KEPT:
            self._by_pod.popitem(last=False)

    def of(self, pod_uid: str) -> bytes | None:
        """The reply about a pod; None: its scores are not kept here."""
        return self._by_pod.get(pod_uid)
