"""When an allocation that kube-scheduler can't use is taken back. Pure.

kube-scheduler clears an allocation only when another node got as far as the DRA filter; a pod
that fits no other node would wait on its claim's node for ever.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dray.domain.names import OWNER_DRAY
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.seen import SeenPod

UNSCHEDULABLE = "Unschedulable"


def is_stuck(picture: Picture, seen: SeenPod) -> bool:
    """Whether kube-scheduler refuses the pod although our allocation waits for it."""
    pod = seen.pod
    if pod is None or pod.binder == OWNER_DRAY or pod.node or pod.deleting:
        return False
    if pod.gated or pod.other_gates or not _says_unscheduled(seen):
        return False
    return any(
        held.claim.allocation is not None and held.claim.decision and not held.claim.reserved_for
        for held in picture.claims_of(pod)
    )


def _says_unscheduled(seen: SeenPod) -> bool:
    return any(
        condition["type"] == "PodScheduled"
        and condition["status"] == "False"
        and condition.get("reason") == UNSCHEDULABLE
        for condition in (seen.object.get("status") or {}).get("conditions") or ()
    )


@dataclass(slots=True)
class Stuck:
    """Since when pods are stuck, in monotonic seconds."""

    after_s: float
    since_s: dict[str, float] = field(default_factory=dict)

    def due(self, stuck: Iterable[str], now_s: float) -> list[str]:
        """UIDs that have been stuck, without a pause, for ``after_s`` seconds."""
        present = tuple(stuck)
        self.since_s = {uid: self.since_s.get(uid, now_s) for uid in present}
        return [uid for uid in present if now_s - self.since_s[uid] >= self.after_s]
