"""When a pod is touched so that its kubelet prepares it again. Pure.

A kubelet tries a failed preparation again only at the pod's next resync, 60 to 90 s later, because
its ``SyncPod`` reports no error. It tries at once when the pod's object changes.
"""

import math
from typing import Final

import msgspec

from dray.api.claims import Claim
from dray.api.names import DRIVER
from dray.api.pods import Pod
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.groups import is_reserved_for
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule

_MOST_TOUCHES: Final = 5
"""After this many touches, the kubelet's own resync is due anyway."""


class PreparationRetries(msgspec.Struct, frozen=True):
    """A pod that waits for its preparation."""

    since_s: float
    """Monotonic."""
    count: int = 0
    """How many times it was touched."""
    due_s: float = math.inf
    """When it is touched next (monotonic)."""

    @classmethod
    def waiting(cls, now_s: float, after_s: float) -> "PreparationRetries":
        """A pod that waits now."""
        return cls(now_s, 0, now_s + after_s)

    def touched(self, now_s: float, after_s: float) -> "PreparationRetries":
        """The next time is twice as far away as this one was."""
        count = self.count + 1
        due_s = now_s + after_s * 2**count if count < _MOST_TOUCHES else math.inf
        return PreparationRetries(self.since_s, count, due_s)

    def agent_is_back(self, now_s: float) -> "PreparationRetries":
        """The kubelet has registered the node's agent just now: try at once, count from zero."""
        return PreparationRetries(self.since_s, 0, now_s)


def awaits_preparation(cache: ObjectCache, cached: CachedPod | None) -> bool:
    """Whether the pod is bound, has our devices reserved for it, and has no sandbox yet: the
    kubelet prepares claims before it makes one."""
    pod = None if cached is None else cached.pod
    if cached is None or pod is None or not (pod.node and cached.node):
        return False
    if pod.deleting or cached.terminal or cached.has_sandbox:
        return False
    ours = claims_to_prepare(cache, pod)
    return bool(ours) and all(is_reserved_for(cache, claim, pod) for claim in ours)


def claims_to_prepare(cache: ObjectCache, pod: Pod) -> list[Claim]:
    """The pod's claims with devices of ours."""
    return [
        held.claim
        for held in cache.claims_of(pod)
        if held.claim.allocation is not None
        and any(device.id.driver == DRIVER for device in held.claim.allocation.devices)
    ]


def touched_message(node: str, waited_s: float, count: int) -> str:
    """The event about a touched pod."""
    return (
        f"the kubelet of node {node} has not started this pod {waited_s:.0f} s after its GPUs were "
        f"allocated; it was made to prepare them again at once ({count} of {_MOST_TOUCHES}). A "
        "failed preparation is otherwise tried again only after 60 to 90 s"
    )


class AwaitsPreparation(RecordedRule[bool], frozen=True, kw_only=True, tag="awaits-preparation"):
    """Whether a pod that is due to be touched still waits for its preparation."""

    pod_uid: str

    def answer(self, cache: ObjectCache) -> bool:
        return awaits_preparation(cache, cache.pods.get(self.pod_uid))
