"""When an allocation that kube-scheduler can't use is taken back. Pure.

kube-scheduler clears an allocation only when another node got as far as the DRA filter; a pod
that fits no other node would wait on its claim's node for ever. What it has cleared is voided:
facts tell only the newest state of a claim, and an allocation that came and went between two of
them would pass for one that is still to come.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dray.domain.names import OWNER_DRAY
from dray.domain.pods import Pod
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.seen import SeenPod

UNSCHEDULABLE, SCHEDULER_ERROR = "Unschedulable", "SchedulerError"
"""Reasons of the condition PodScheduled, beside ``SchedulingGated``."""
_NO_MORE: Mapping[str, float] = MappingProxyType({})


def is_stuck(picture: Picture, seen: SeenPod) -> bool:
    """Whether kube-scheduler refuses the pod although our allocation waits for it.

    Not while it makes room there: it has nominated the allocation's node, and the pods that it
    evicts take their time to end.
    """
    pod = seen.pod
    if pod is None or not _is_with_kube_scheduler(pod):
        return False
    reason = _unscheduled(seen)
    nominated = (seen.object.get("status") or {}).get("nominatedNodeName") or ""
    return reason in (UNSCHEDULABLE, SCHEDULER_ERROR) and any(
        allocation is not None
        and held.claim.decision
        and not held.claim.reserved_for
        and not (reason == UNSCHEDULABLE and nominated and allocation.node == nominated)
        for held in picture.claims_of(pod)
        for allocation in (held.claim.allocation,)
    )


def is_tried_again(picture: Picture, seen: SeenPod) -> bool:
    """Whether an earlier attempt was taken back: then kube-scheduler's refusal may be of that
    one, and it may be a while before it tries the pod again."""
    return seen.pod is not None and any(held.claim.void for held in picture.claims_of(seen.pod))


def cleared(picture: Picture, seen: SeenPod) -> tuple[str, ...]:
    """UIDs of the pod's claims whose allocation kube-scheduler took back.

    The gate is lifted when all claims are allocated as decided. So an attempt without allocation
    after that was cleared, or is being written again: ask only where nobody executes it.
    """
    pod = seen.pod
    if pod is None or not _is_with_kube_scheduler(pod):
        return ()
    return tuple(
        held.claim.uid
        for held in picture.claims_of(pod)
        if held.claim.allocation is None
        and held.claim.decision > held.claim.void
        and not held.claim.deleting
    )


def _is_with_kube_scheduler(pod: Pod) -> bool:
    placed = pod.binder == OWNER_DRAY or pod.node or pod.deleting
    return not (placed or pod.gated or pod.other_gates)


def _unscheduled(seen: SeenPod) -> str:
    """Why kube-scheduler has not placed the pod, by its reason; empty if it didn't say."""
    for condition in (seen.object.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("reason") or "")
    return ""


@dataclass(slots=True)
class Stuck:
    """Since when pods are stuck, in monotonic seconds."""

    after_s: float
    since_s: dict[str, float] = field(default_factory=dict)

    def due(
        self, stuck: Iterable[str], now_s: float, more_s: Mapping[str, float] = _NO_MORE
    ) -> list[str]:
        """UIDs that have been stuck, without a pause, for ``after_s`` seconds; for some,
        ``more_s`` says how many more they have."""
        present = tuple(stuck)
        self.since_s = {uid: self.since_s.get(uid, now_s) for uid in present}
        return [
            uid
            for uid in present
            if now_s - self.since_s[uid] >= self.after_s + more_s.get(uid, 0.0)
        ]
