"""When the pods of a group's decision are bound: all of them, or none. Pure."""

from typing import Final, Literal

from dray.api.names import OWNER_DRAY
from dray.api.pods import TERMINAL_PHASES
from dray.messages.decisions import PodDecision
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.execution.decisions.next_step import (
    GO,
    WAIT,
    same_allocation,
    stop_jointly,
)

Verdict = str
"""``GO``, ``WAIT``, or why the decision is rolled back (``stop_jointly``)."""
_State = Literal["running", "ready", "unready", "gone"]
_LATE: Final = "not all of its pods had their devices {timeout_s:g} s after the decision"


class JointStep(RecordedRule[Verdict], frozen=True, kw_only=True, tag="joint-step"):
    """What becomes of a decision on a group before its pods are bound."""

    decisions: tuple[PodDecision, ...]
    """The decisions on its pods that are not void."""
    size: int
    """The number of its pods."""
    timeout_s: float
    age_s: float
    """The age of the decision."""

    def answer(self, cache: ObjectCache) -> Verdict:
        states = [_state(cache, one) for one in self.decisions]
        if "running" in states:
            return GO  # All had their devices when the first one was bound.
        if len(states) < self.size or "gone" in states:
            lost = self.size - len(states) + states.count("gone")
            return stop_jointly(f"{lost} of {self.size} pods of its group can't be bound")
        if self.age_s > self.timeout_s:
            return stop_jointly(_LATE.format(timeout_s=self.timeout_s))
        return WAIT if "unready" in states else GO


def _state(cache: ObjectCache, decision: PodDecision) -> _State:
    cached = cache.pods.get(decision.pod_uid)
    if cached is None or cached.pod is None:
        return "gone"
    pod = cached.pod
    if cached.node or pod.node or pod.phase in TERMINAL_PHASES:
        return "running"
    if pod.deleting:
        return "gone"
    held = [cache.claims.get(claim.uid) for claim in decision.claims]
    for wanted, one in zip(decision.claims, held, strict=True):
        if one is None or one.claim.deleting or one.claim.void >= wanted.attempt:
            return "gone"
        allocation = one.claim.allocation
        # Wait until the watch shows it: then other components can also read it.
        if allocation is None or not same_allocation(allocation, wanted.allocation):
            return "unready"
        if not one.allocation_watched:
            return "unready"
    if decision.binder != OWNER_DRAY and not pod.gated:
        return "running"
    return "ready"
